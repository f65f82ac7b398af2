"""Every verb of the flow of work, on a store with very many rows: each is to read a few of them.

Of a million tasks, four in ten have ended, two are ready, one is delayed, one is paused and two wait. They are in ten
queues with settings. Each has a label of its tenant; a few have one more. Beside them are as many pauses, schedules and
queues, all of these with every setting; of one queue it is the turn to look what it keeps no longer. `pauses`,
`queue_settings` and `schedules` are not here: they return all rows that there are.
"""

# ruff: noqa: ANN401 - the options are fields of the records that are made

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import NewTask, QueueFull, TaskState
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move
from holdfast.model.queries import TaskFilter
from holdfast.model.schedule import StoredSchedule
from holdfast.model.task import IfExists
from holdfast.model.transitions import OPEN
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import StateStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUEUES = 10
RARE = 100
"""Tasks with the second label."""
PAGE = 50
FULL = "queue 3"
ACME = {"tenant": "acme"}
HOUR = timedelta(hours=1)

Call = Callable[[StateStore], Awaitable[object]]


def new_task(**options: Any) -> NewTask:
    return NewTask(name="job", **{"queue": "queue 1", **options})


def queue_of(number: int) -> str:
    return f"queue {number // 10 % QUEUES}"


def task_id(number: int) -> str:
    return f"t{number:07}"


def schedule_name(number: int) -> str:
    return f"s{number:07}"


def key_of(number: int) -> str:
    return f"key {number}"


@dataclass(frozen=True)
class Big:
    """What the calls name of a store with so many rows. What is changed by one of them is named by no other."""

    rows: int
    part: int = 1
    """The calls of another part can be made beside them."""

    @property
    def middle(self) -> int:
        """A number that ends with two zeros: the ten tasks from here on are of queue 0."""
        return self.rows // 200 * 100 + 1000 * self.part

    @property
    def worker(self) -> str:
        return f"worker {self.part}"

    def calls(self) -> dict[str, Call]:
        return {
            **self._labels(),
            **self._schedules(),
            **self._submissions(),
            **self._queues_and_claims(),
            **self._pauses(),
        }

    def _labels(self) -> dict[str, Call]:
        rare = {"kind": "rare", **ACME}

        def find(where: TaskFilter, **options: Any) -> Call:
            async def pages(store: StateStore) -> None:
                first = await store.find(where, limit=PAGE, **options)
                assert len(first.items) == PAGE
                await store.find(where, limit=PAGE, after=first.next, **options)

            return pages

        async def count(store: StateStore) -> None:
            assert sum((await store.count(TaskFilter(labels=rare))).values()) == RARE

        return {
            "find by a label": find(TaskFilter(labels=ACME)),
            "find by a label, oldest first": find(TaskFilter(labels=ACME), newest_first=False),
            "find by two labels": find(TaskFilter(labels=rare)),
            "find what is open by a label": find(TaskFilter(labels=ACME, states=OPEN)),
            "find what waits by a label": find(TaskFilter(labels=ACME, states=frozenset({TaskState.WAITING}))),
            "count by labels": count,
        }

    def _schedules(self) -> dict[str, Call]:
        async def tick(store: StateStore) -> None:
            stored = await store.schedule(schedule_name(self.middle))
            assert stored is not None
            tasks = [NewTask(name="job", key=f"tick {self.part}", queue="queue 2", schedule=stored.name, labels=ACME)]
            assert await store.put_schedule(replace(stored, due_at=None), seen=stored.revision, tasks=tasks)

        async def make(store: StateStore) -> None:
            name = f"new {self.part}"
            made = StoredSchedule(name=name, spec={}, anchored_at=NOW, tick_at=NOW, due_at=NOW)
            assert await store.put_schedule(made, seen=0) == []

        async def delete(store: StateStore) -> None:
            assert await store.delete_schedule(schedule_name(self.middle + 2), seen=1)

        async def due(store: StateStore) -> None:
            assert len(await store.due_schedules(limit=10)) == 10

        return {"due_schedules": due, "a tick": tick, "make a schedule": make, "delete a schedule": delete}

    def _submissions(self) -> dict[str, Call]:
        delayed, ended = self.middle + 106, self.middle + 100

        def submit(*tasks: NewTask, created: bool) -> Call:
            async def submitted(store: StateStore) -> None:
                assert [answer.created for answer in await store.submit(tasks)] == [created] * len(tasks)

            return submitted

        def new(number: int, **options: Any) -> NewTask:
            return NewTask(name="job", queue=queue_of(number), key=key_of(number), **options)

        async def be_refused(store: StateStore) -> None:
            try:
                await store.submit([NewTask(name="job", queue=FULL)])
            except QueueFull:
                return
            raise AssertionError("the queue was not full")

        debounce = timedelta(hours=2)
        return {
            "submit": submit(new_task(labels=ACME, available_at=NOW + HOUR), created=True),
            "submit many": submit(*(new_task(key=f"many {self.part} {n}") for n in range(20)), created=True),
            "submit into a full queue": be_refused,
            "submit what replaces": submit(new(delayed, labels=ACME, if_exists=IfExists.REPLACE), created=False),
            "submit what is not to exist": submit(new(delayed, if_exists=IfExists.REJECT), created=False),
            "debounce what waits": submit(new(delayed, debounce_max=debounce, available_at=NOW + HOUR), created=False),
            "debounce what has ended": submit(new(ended, debounce_max=debounce), created=True),
        }

    def _queues_and_claims(self) -> dict[str, Call]:
        queues = tuple(queue_of(10 * n) for n in range(QUEUES))
        claim = Claim(worker_id=self.worker, number=1, limit=5, queues=queues, names=("job", "x"))

        async def change(store: StateStore) -> None:
            changed = await store.set_queue("queue 4", max_pending=7, concurrency=7, retention={"failed": HOUR})
            assert (changed.max_pending, changed.concurrency, changed.retention) == (7, 7, {"failed": HOUR})

        async def queued(store: StateStore) -> None:
            assert len((await store.queued(limit=PAGE)).items) == PAGE

        async def queued_behind(store: StateStore) -> None:
            first = await store.queued(limit=1)
            assert len((await store.queued(limit=PAGE, after=first.next)).items) == PAGE

        async def queued_in_one(store: StateStore) -> None:
            assert len((await store.queued(queue="queue 5", limit=PAGE)).items) == PAGE

        async def register(store: StateStore) -> None:
            await store.register(NewWorker(id=self.worker, lease=80_000.0))

        async def claim_and_complete(store: StateStore) -> None:
            claimed = await store.claim(claim)
            assert len(claimed) == 5
            ended = Move(to=TaskState.COMPLETED, reason="done")
            guards = {one.task.id: Held(self.worker, one.task.fence, 1) for one in claimed}
            commits = [Commit(task_id=one, guard=guard, operations=(ended,)) for one, guard in guards.items()]
            assert all(verdict.applied for verdict in await store.commit(commits))

        async def claim_by_many_names(store: StateStore) -> None:
            names = ("job", *(f"name {n}" for n in range(300)))
            assert len(await store.claim(replace(claim, number=2, names=names))) == 5

        return {
            "change a queue": change,
            "queued": queued,
            "queued behind a task": queued_behind,
            "queued in one queue": queued_in_one,
            "register": register,
            "claim and complete": claim_and_complete,
            "claim by many names": claim_by_many_names,
            "heartbeat": lambda store: store.heartbeat(self.worker),
            "has_suspect": lambda store: store.has_suspect(claim),
            "sweep": lambda store: store.sweep(),
            "prune": lambda store: store.prune(timedelta(0), limit=10),
        }

    def _pauses(self) -> dict[str, Call]:
        ready, held = self.middle + 204, self.middle + 207

        async def claim_what_is_not_paused(store: StateStore) -> None:
            queues, names = ("queue 6", "queue 7"), ("job", "paused")
            asked = Claim(worker_id=self.worker, number=3, limit=5, queues=queues, names=names)
            assert {one.task.queue for one in await store.claim(asked)} == {"queue 7"}

        async def unpause(store: StateStore) -> None:
            assert await store.unpause(task_id(held))

        return {
            "pause a task": lambda store: store.pause(task_id(ready), by="ann"),
            "unpause a task": unpause,
            "pause a queue": lambda store: store.pause("queue:queue 6", by="ann"),
            "pause a name": lambda store: store.pause("task:paused", by="ann"),
            "claim beside pauses": claim_what_is_not_paused,
            "unpause a queue": lambda store: store.unpause("queue:queue 6"),
        }
