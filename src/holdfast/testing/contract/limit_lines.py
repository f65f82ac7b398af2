"""Lines of limits: which task is let out next, what brings a task back into its line, and what leaves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.model.clock import ManualClock
from holdfast.model.flow_limit import Limit
from holdfast.model.operations import ReopenChild, RequireUndo, UntilTime
from holdfast.model.task import IfExists
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    LEASE,
    NAME,
    Attempt,
    apply_outside,
    claimed_by,
    claimed_ids,
    enter,
    move,
    new_task,
    row,
    running_task,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.contract.limits import HOUR, SECOND, taken


def ways_back(store: StateStore, clock: ManualClock) -> dict[str, Callable[[Attempt], Awaitable[None]]]:
    """Return what brings a task back that a worker has, a child of the task ``parent``; some need a second more."""

    async def retry(attempt: Attempt) -> None:
        await attempt.apply(move(TaskState.PENDING))

    async def delay(attempt: Attempt) -> None:
        await attempt.apply(move(TaskState.PENDING, available_at=clock.now() + SECOND))

    async def wake(attempt: Attempt) -> None:
        await attempt.apply(move(TaskState.WAITING, waits=(UntilTime(key="t", at=clock.now() + SECOND),)))

    async def hand_back(attempt: Attempt) -> None:
        await store.retire(attempt.worker_id)

    async def resume(attempt: Attempt) -> None:
        await attempt.apply(move(TaskState.FAILED))
        await apply_outside(store, attempt.task.id, move(TaskState.PENDING))

    async def begin_new_round(attempt: Attempt) -> None:
        await attempt.apply(move(TaskState.REVIEW))
        await attempt.apply(move(TaskState.PENDING, new_round=True, feedback="again"))

    async def review(attempt: Attempt) -> None:
        await attempt.apply(move(TaskState.REVIEW))
        await store.retire(attempt.worker_id)

    async def begin_child_again(attempt: Attempt) -> None:
        await attempt.apply(COMPLETE)
        child = await stored(store, attempt.task.id)
        parent = await running_task(store, "parent", "parent's worker")
        await parent.apply(ReopenChild(child_id=child.id, revision=child.revision, reason="again"))

    ways = (retry, delay, wake, hand_back, resume, begin_new_round, review, begin_child_again)
    return {way.__name__: way for way in ways}


class LimitLinesContract(ContractBase):
    """The order in which tasks with limits are claimed."""

    async def test_a_line_is_in_the_order_of_the_queue(self, store: StateStore) -> None:
        """Of a task that came later with a higher priority, too: one that could have been claimed before waits."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        await enter(store)
        for task_id, priority in (("low", 0), ("lower", -1)):
            await submit_one(store, task_id, limits=["openai"], priority=priority)
        await store.sweep()
        for task_id, priority in (("high", 5), ("higher", 6), ("lowest", -2), ("replaced", -9)):
            key = "to replace" if task_id == "replaced" else None
            await submit_one(store, task_id, limits=["openai"], priority=priority, key=key)
            await store.sweep()
        await store.submit(
            [new_task("any", key="to replace", limits=["openai"], priority=9, if_exists=IfExists.REPLACE)]
        )
        for number, expected in enumerate(("replaced", "higher", "high", "low", "lower", "lowest"), 1):
            attempt = await claimed_by(store, "worker", number)
            assert attempt.task.id == expected
            await attempt.apply(COMPLETE)

    async def test_a_place_that_is_lost_meanwhile_goes_to_the_next_in_order(self, store: StateStore) -> None:
        """Two tasks could be claimed until another limit of theirs was full: the one behind in a line is claimed."""
        for name in ("a", "b", "z"):
            await store.set_limit(Limit(name=name, concurrency=1))
        await enter(store)
        tasks: tuple[tuple[str, list[str]], ...] = (
            ("first", ["a", "z"]),
            ("second", ["b", "z"]),
            ("third", ["b"]),
            ("fourth", []),
        )
        for priority, (task_id, keys) in enumerate(tasks):
            await submit_one(store, task_id, limits=keys, priority=-priority)
        await submit_one(store, "elsewhere", queue="elsewhere", limits=["z"])
        await store.sweep()
        await store.acquire("elsewhere", "worker")
        assert await claimed_ids(store, limit=1) == ["third"]
        assert await claimed_ids(store, number=2) == ["fourth"]

    async def test_a_claim_is_filled_behind_tasks_whose_keys_are_full(self, store: StateStore) -> None:
        """In the order of the queue, also with keys that nothing has named before."""
        await store.set_limit(Limit(name="tenant", concurrency=2, each=True))
        await enter(store)
        await store.submit([new_task(f"{n:03}", queue="line", limits=[f"tenant:{n // 10}"]) for n in range(200)])
        expected = [f"{n:03}" for n in range(200) if n % 10 < 2]
        assert await claimed_ids(store, queues=("line",), limit=30) == expected[:30]
        assert await claimed_ids(store, number=2, queues=("line",), limit=30) == expected[30:]

    async def test_a_claim_hints_what_it_lets_out_for_others(self, store: StateStore) -> None:
        """In a queue that its own worker does not serve."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        attempt = await running_task(store, "first", limits=["openai"])
        await submit_one(store, "second", queue="elsewhere", limits=["openai"])
        assert await claimed_ids(store, number=2, queues=("elsewhere",)) == []
        await attempt.apply(COMPLETE)
        await hints_of(
            store, store.claim(Claim(worker_id="worker", number=2, limit=1, names=(NAME,))), "queue:elsewhere"
        )
        assert await claimed_ids(store, number=2, queues=("elsewhere",)) == ["second"]

    async def test_whatever_brings_it_back_waits_again(self, store: StateStore, clock: ManualClock) -> None:
        """In the line of its first key, behind another task that has the place."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        held: dict[str, tuple[Attempt, str]] = {}
        for name, bring_back in ways_back(store, clock).items():
            key = f"tenant:{name}"
            attempt = await running_task(store, name, f"worker of {name}", limits=[key], parent_id="parent")
            await bring_back(attempt)
            await submit_one(store, f"first of {name}", queue=f"queue of first {name}", limits=[key])
            await enter(store, f"first of {name}", lease=10 * LEASE)
            first = await claimed_by(store, f"first of {name}", queues=(f"queue of first {name}",))
            held[name] = first, key
        clock.advance(1)
        await store.sweep()
        await enter(store)
        queues = tuple(f"queue of {name}" for name in held)
        assert await claimed_ids(store, queues=queues, limit=50) == []
        for number, (name, (first, key)) in enumerate(held.items(), 2):
            with row(name):
                assert await taken(store, key) == (1, 1)
                assert (await stored(store, name)).waits_for == key
                await first.apply(COMPLETE)
                assert await claimed_ids(store, number=number, queues=queues, limit=50) == [name]
                assert await taken(store, key) == (1, 0)

    async def test_what_comes_back_is_claimed_at_once_where_there_is_room(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Nothing else has to happen with its limits. So it is with a task that is paused no more."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        await enter(store, lease=10 * LEASE)
        for number, (name, bring_back) in enumerate(ways_back(store, clock).items(), 1):
            with row(name):
                options: dict[str, Any] = {"limits": [f"tenant:{name}"], "parent_id": "parent"}
                await bring_back(await running_task(store, name, f"worker of {name}", **options))
                clock.advance(1)
                await store.sweep()
                assert await claimed_ids(store, number=number, queues=(f"queue of {name}",)) == [name]
        await submit_one(store, "paused", limits=["tenant:p"])
        await store.pause("paused", by="person")
        await store.sweep()
        await store.unpause("paused")
        assert await claimed_ids(store, number=100) == ["paused"]

    async def test_what_leaves_the_line_makes_room_in_it(self, store: StateStore, clock: ManualClock) -> None:
        """Cancelled, late, paused, replaced: the next task of the line is claimed instead."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        await store.set_limit(Limit(name="other", concurrency=1))
        await enter(store)
        due = clock.now() + SECOND

        async def be_late(_: str) -> None:
            clock.advance(1)
            assert (await store.sweep()).failed

        async def put_off(task_id: str) -> None:
            later = clock.now() + HOUR
            await store.submit([new_task("any", key=task_id, available_at=later, **replacing)])

        async def change_limits(task_id: str) -> None:
            later = {"limits": ["other"], "priority": -10, "key": task_id}
            await store.submit([new_task("any", **(replacing | later))])

        replacing: dict[str, Any] = {"queue": "line", "if_exists": IfExists.REPLACE}
        ways: dict[str, Callable[[str], Awaitable[Any]]] = {
            "cancelled": lambda task_id: apply_outside(store, task_id, CANCEL),
            "paused": lambda task_id: store.pause(task_id, by="person"),
            "late": be_late,
            "put off": put_off,
            "other limits": change_limits,
        }
        for number, (way, leave) in enumerate(ways.items(), 1):
            with row(way):
                key = f"tenant:{way}"
                deadline = due if way == "late" else None
                options: dict[str, Any] = {"queue": "line", "limits": [key]}
                await submit_one(store, f"first, {way}", key=f"first, {way}", deadline=deadline, **options)
                await submit_one(store, f"second, {way}", priority=-1, **options)
                await store.sweep()
                await leave(f"first, {way}")
                assert await claimed_ids(store, number=number, queues=("line",), limit=1) == [f"second, {way}"]
                assert await taken(store, key) == (1, 0)

    async def test_a_late_task_that_must_undo_is_claimed(self, store: StateStore, clock: ManualClock) -> None:
        """Its deadline matters no more from then on; before, it keeps no place in the line."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        first = await running_task(store, "first", limits=["openai"])
        await submit_one(store, "late", limits=["openai"], deadline=clock.now() + SECOND)
        await store.sweep()
        clock.advance(1)
        await first.apply(COMPLETE)
        assert await claimed_ids(store, number=2) == []
        await apply_outside(store, "late", RequireUndo(required=True))
        assert await claimed_ids(store, number=2) == ["late"]

    async def test_a_paused_task_comes_back_into_the_line(self, store: StateStore) -> None:
        """Whether it waited in it, or could have been claimed."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        await enter(store)
        for task_id in ("first", "second"):
            await submit_one(store, task_id, limits=["openai"])
        await store.sweep()
        for task_id in ("first", "second"):
            await store.pause(task_id, by="person")
        assert await claimed_ids(store) == []
        assert await taken(store, "openai") == (0, 0)
        for task_id in ("first", "second"):
            await store.unpause(task_id)
        assert await taken(store, "openai") == (0, 2)
        assert await claimed_ids(store) == ["first"]
        assert await taken(store, "openai") == (1, 1)

    async def test_a_queue_that_no_worker_serves_keeps_no_place(self, store: StateStore) -> None:
        """What could be claimed has not begun."""
        await store.set_limit(Limit(name="openai", concurrency=2))
        await enter(store)
        await store.submit([new_task(f"a {n}", queue="a deserted queue", limits=["openai"]) for n in range(5)])
        await store.submit([new_task(f"b {n}", queue="b", limits=["openai"]) for n in range(5)])
        await store.sweep()
        assert await claimed_ids(store, queues=("b",)) == ["b 0", "b 1"]

    async def test_a_suspect_keeps_no_other_from_its_place(self, store: StateStore, clock: ManualClock) -> None:
        """It is claimed alone, and only if its limits have room for it."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        for n in range(2):
            await enter(store, f"victim {n}")
            if n == 0:
                await submit_one(store, "suspect", limits=["openai"])
            await claimed_by(store, f"victim {n}", queues=("default",))
            clock.advance(LEASE)
            await store.sweep()
        await submit_one(store, "innocent", limits=["openai"])
        await enter(store)
        attempt = await claimed_by(store, "worker")
        assert attempt.task.id == "innocent"
        assert await claimed_ids(store, number=2, alone=True) == []
        await attempt.apply(COMPLETE)
        assert await claimed_ids(store, number=2, alone=True) == ["suspect"]
