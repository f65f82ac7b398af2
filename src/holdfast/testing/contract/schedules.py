"""Schedules: changed only as they were seen, together with the tasks that they submit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue, QueueFull
from holdfast.model.schedule import StoredSchedule
from holdfast.model.task import Submitted
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    NAME,
    apply_outside,
    claimed_by,
    claimed_ids,
    enter,
    new_task,
    row,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import START, ContractBase
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.snapshot import snapshot

MINUTE = timedelta(minutes=1)
LONG_AGO = timedelta(days=365)


def schedule_at(due: datetime | None = START, name: str = "nightly", **options: Any) -> StoredSchedule:  # noqa: ANN401
    """Describe a schedule."""
    given: dict[str, Any] = {
        "spec": {"any": ["json", 1.5, None]},
        "anchored_at": START,
        "tick_at": due or START,
    } | options
    return StoredSchedule(name=name, due_at=due, **given)


async def put(store: StateStore, schedule: StoredSchedule) -> StoredSchedule:
    """Store a new schedule, and return it as stored."""
    assert await store.put_schedule(schedule, seen=0) == []
    return await scheduled(store, schedule.name)


async def scheduled(store: StateStore, name: str = "nightly") -> StoredSchedule:
    """Return a schedule that must exist."""
    found = await store.schedule(name)
    assert found is not None
    return found


async def due_names(store: StateStore, **options: Any) -> list[str]:  # noqa: ANN401
    """Return the names of the schedules that are due. A sweep must agree."""
    names = [one.name for one in await store.due_schedules(**options)]
    tick = (await store.sweep()).next_tick
    assert bool(names) == (tick is not None and tick <= await store.now())
    return names


class SchedulesContract(ContractBase):
    """What is submitted again and again."""

    async def test_a_schedule_is_stored_as_it_was_given(self, store: StateStore, clock: ManualClock) -> None:
        """With a revision and a date of the store's own."""
        whole = schedule_at(
            START + MINUTE,
            waits_for_last=True,
            declared=True,
            paused_at=START - MINUTE,
            paused_by="anna",
            pause_reason="it \u00e9",
            last_tick_at=START - MINUTE,
            last_task_id="gone",
            fired_at=START,
            skipped_at=START - 2 * MINUTE,
            spec={"input": ["\u00e9", {"a": 1}], "task": NAME},
        )
        found = await put(store, whole)
        assert found == replace(whole, revision=1, created_at=clock.now())
        other = await put(store, schedule_at(None, "daily"))
        assert await store.schedules() == [other, found]
        assert await store.schedule("weekly") is None

    async def test_a_schedule_changes_only_as_it_was_seen(self, store: StateStore, clock: ManualClock) -> None:
        """A caller that saw another revision changes nothing, and submits nothing."""
        first = await put(store, schedule_at())
        later = replace(first, tick_at=START + MINUTE, due_at=START + MINUTE)
        clock.advance(1)
        assert await store.put_schedule(later, seen=1) == []
        changed = await scheduled(store)
        assert changed == replace(later, revision=2, created_at=first.created_at)
        before = await snapshot(store)
        for seen in (0, 1, 3):
            with row(seen):
                assert await store.put_schedule(first, seen=seen, tasks=[new_task("late")]) is None
        assert await store.put_schedule(schedule_at(name="new"), seen=1, tasks=[new_task("late")]) is None
        assert await snapshot(store) == before
        assert await store.schedules() == [changed]

    async def test_a_tick_moves_the_schedule_and_submits_in_one(self, store: StateStore) -> None:
        """The task is claimed like any other, and knows its schedule."""
        await enter(store)
        first = await put(store, schedule_at())
        tasks = [new_task(str(n), key=f"nightly@{n}", schedule="nightly") for n in range(3)]
        answer = await store.put_schedule(replace(first, last_task_id="2"), seen=1, tasks=tasks)
        assert answer == [Submitted(task_id=str(n), created=True) for n in range(3)]
        assert (await stored(store, "1")).schedule == "nightly"
        assert (await scheduled(store)).last_state is TaskState.PENDING
        assert await claimed_ids(store) == ["0", "1", "2"]

    async def test_a_task_of_a_tick_that_is_there_already_is_not_submitted_again(self, store: StateStore) -> None:
        """Answered as by submit: with its id, or as a conflict."""
        await submit_one(store, "a", key="one", user_input=1)
        first = await put(store, schedule_at())
        tasks = [new_task("b", key="one", user_input=1), new_task("c"), new_task("d", key="two")]
        assert await store.put_schedule(first, seen=1, tasks=tasks) == [
            Submitted(task_id="a", created=False),
            Submitted(task_id="c", created=True),
            Submitted(task_id="d", created=True),
        ]
        other = [new_task("e", key="one", user_input=2)]
        assert await store.put_schedule(first, seen=2, tasks=other) == [
            Submitted(task_id="a", created=False, conflict=True)
        ]

    async def test_a_full_queue_refuses_no_tick(self, store: StateStore) -> None:
        """A submission that comes behind it is refused."""
        await store.set_queue("q", max_pending=0)
        first = await put(store, schedule_at())
        task = new_task("a", queue="q", schedule="nightly")
        assert await store.put_schedule(first, seen=1, tasks=[task]) == [Submitted(task_id="a", created=True)]
        with pytest.raises(QueueFull):
            await store.submit([new_task("b", queue="q")])

    async def test_of_many_who_fire_a_tick_one_does(self, store: StateStore) -> None:
        """Each of them with a task of its own."""
        first = await put(store, schedule_at())
        moved = replace(first, tick_at=START + MINUTE, due_at=START + MINUTE)
        answers = await asyncio.gather(
            *(store.put_schedule(moved, seen=1, tasks=[new_task(f"by {n}", name=f"job {n}")]) for n in range(20))
        )
        assert [len(answer) for answer in answers if answer is not None] == [1]
        assert sum((await store.count()).values()) == 1

    async def test_what_a_tick_submits_is_hinted_at(self, store: StateStore) -> None:
        """As whatever is submitted."""
        first = await put(store, schedule_at())
        tick = store.put_schedule(first, seen=1, tasks=[new_task("a", queue="q")])
        await hints_of(store, tick, "queue:q", "task:a")

    async def test_a_deleted_schedule_leaves_its_tasks(self, store: StateStore) -> None:
        """It is deleted only as it was seen, and its name is free then."""
        first = await put(store, schedule_at())
        await store.put_schedule(replace(first, last_task_id="a"), seen=1, tasks=[new_task("a")])
        assert not await store.delete_schedule("nightly", seen=1)
        assert not await store.delete_schedule("other", seen=1)
        assert await store.delete_schedule("nightly", seen=2)
        assert await store.schedules() == []
        assert (await stored(store, "a")).state is TaskState.PENDING
        assert (await put(store, first)).revision == 1

    async def test_a_schedule_is_due_at_its_time(self, store: StateStore, clock: ManualClock) -> None:
        """First due first. One without a time never is."""
        for name, minutes in (("b", 2), ("a", 2), ("c", 1)):
            await put(store, schedule_at(START + minutes * MINUTE, name))
        await put(store, schedule_at(None, "never"))
        assert (await store.sweep()).next_tick == START + MINUTE
        for seconds, names in ((59, []), (1, ["c"]), (60, ["c", "a", "b"])):
            with row(clock.now()):
                clock.advance(seconds)
                assert await due_names(store) == names
        assert await due_names(store, limit=2) == ["c", "a"]

    async def test_a_store_without_schedules_has_no_next_tick(self, store: StateStore) -> None:
        """Nor has one whose schedules fire nothing."""
        assert (await store.sweep()).next_tick is None
        await put(store, schedule_at(None))
        assert (await store.sweep()).next_tick is None
        assert await store.due_schedules() == []

    async def test_a_schedule_may_wait_for_the_end_of_its_last_task(self, store: StateStore) -> None:
        """However long ago it was due."""
        ends = {"completed": COMPLETE, "cancelled": CANCEL}
        for name in ends:
            await enter(store, name)
            await submit_one(store, name, queue=name)
            for waits in (True, False):
                await put(store, schedule_at(START, f"{name} {waits}", waits_for_last=waits, last_task_id=name))
        assert await due_names(store) == ["cancelled False", "completed False"]
        for number, (name, end) in enumerate(ends.items()):
            attempt = await claimed_by(store, name, queues=(name,))
            assert len(await due_names(store)) == 2 + number
            await attempt.apply(end)
            assert f"{name} True" in await due_names(store)
            seen = await scheduled(store, f"{name} True")
            assert (seen.last_state, seen.last_ended_at) == (TaskState(name), await store.now())

    async def test_a_schedule_whose_declaring_worker_died_is_looked_after(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """At once, not at its next tick; behind those that are due."""
        await enter(store, "w")
        await put(store, schedule_at(START + 9 * LONG_AGO, "far", declared=True, declared_by="w"))
        await put(store, schedule_at(None, "paused", declared=True, declared_by="w"))
        await put(store, schedule_at(START, "due"))
        assert await due_names(store) == ["due"]
        assert (await scheduled(store, "far")).declarer_lives
        clock.advance(5)
        await store.retire("w")
        assert await due_names(store) == ["due", "far", "paused"]
        orphan = await scheduled(store, "far")
        assert orphan.is_orphan
        await store.put_schedule(replace(orphan, declared_by=None, due_at=None), seen=1)
        assert await due_names(store) == ["due", "paused"]

    async def test_a_declaring_worker_that_is_not_kept_any_more_is_dead(self, store: StateStore) -> None:
        """So is one that never was."""
        await put(store, schedule_at(START + MINUTE, declared=True, declared_by="unknown"))
        assert await due_names(store) == ["nightly"]

    async def test_prune_keeps_schedules(self, store: StateStore, clock: ManualClock) -> None:
        """Its last task may go."""
        first = await put(store, schedule_at(None))
        await store.put_schedule(replace(first, last_task_id="a"), seen=1, tasks=[new_task("a")])
        await apply_outside(store, "a", CANCEL)
        assert (await scheduled(store)).last_state is TaskState.CANCELLED
        clock.advance(3 * LONG_AGO.total_seconds())
        assert (await store.prune(LONG_AGO)).tasks == 1
        seen = await scheduled(store)
        assert (seen.last_task_id, seen.last_state, seen.last_ended_at) == ("a", None, None)

    async def test_a_schedule_that_cannot_be_stored_is_refused(self, store: StateStore) -> None:
        """At the door: neither the schedule nor a task of it is stored."""
        wrong: dict[str, dict[str, Any]] = {
            "not JSON": {"schedule": schedule_at(spec={1, 2})},
            "not a schedule": {"schedule": "nightly"},
            "seen too little": {"schedule": schedule_at(), "seen": -1},
            "a task's input": {"schedule": schedule_at(), "tasks": [new_task("a", user_input={1})]},
        }
        for name, options in wrong.items():
            given: dict[str, Any] = {"seen": 0, **options}
            with row(name), pytest.raises(InvalidValue):
                await store.put_schedule(**given)
        for name in ("", "x" * 200, "a\0b"):
            with row(name), pytest.raises(InvalidValue):
                schedule_at(name=name)
        assert await store.schedules() == []
        assert sum((await store.count()).values()) == 0
