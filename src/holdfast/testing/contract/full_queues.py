"""Full queues: what would go beyond the limit of a queue is refused, and nothing of it is stored."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.errors import InvalidValue, QueueFull
from holdfast.model.operations import ReopenChild, SubmitChild, UntilTime, WriteStep
from holdfast.model.queue_settings import KEEP, QueueSettings
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    LEASE,
    apply_outside,
    claimed_by,
    claimed_ids,
    enter,
    move,
    new_task,
    row,
    running_task,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot

QUEUE = "default"


async def pending(store: StateStore, queue: str = QUEUE) -> int:
    """Return how many tasks count as pending in a queue with settings."""
    [found] = [settings.pending for settings in await store.queue_settings() if settings.name == queue]
    return found


class FullQueuesContract(ContractBase):
    """set_queue, and what it means for submissions."""

    async def test_settings_are_kept_changed_and_taken_away(self, store: StateStore) -> None:
        """What is not named stays; the same again changes nothing; None removes the limit."""
        assert await store.queue_settings() == []
        await submit_one(store)
        limited = QueueSettings(name=QUEUE, max_pending=3, pending=1)
        assert await store.set_queue(QUEUE, max_pending=3) == limited
        assert await store.set_queue(QUEUE, max_pending=3) == limited
        assert await store.set_queue(QUEUE, max_pending=KEEP) == limited
        empty = await store.set_queue("another \U0001f600")
        assert await store.queue_settings() == sorted([limited, empty], key=lambda one: one.name)
        assert await store.set_queue(QUEUE, max_pending=None) == QueueSettings(name=QUEUE, pending=1)
        await store.submit([new_task(f"task {n}") for n in range(10)])
        assert await pending(store) == 11

    async def test_a_full_queue_refuses_and_stores_nothing(self, store: StateStore) -> None:
        """One by one and together, new or beside what is new elsewhere: all of a call, or nothing."""
        await store.set_queue(QUEUE, max_pending=3)
        await store.submit([new_task("a"), new_task("b")])
        beyond = (
            [new_task("c"), new_task("d")],
            [new_task("elsewhere", queue="other"), new_task("c"), new_task("d")],
            [new_task("c", key="k"), new_task("d", key="l"), new_task("c", key="k")],
        )
        before = await snapshot(store)
        for tasks in beyond:
            with row(*(task.id for task in tasks)):
                with pytest.raises(QueueFull, match=r"'default' is full: 3 .* max_pending") as refused:
                    await store.submit(tasks)
                assert (refused.value.queue, refused.value.limit) == (QUEUE, 3)
                assert await snapshot(store) == before
        await submit_one(store, "c")
        with pytest.raises(QueueFull):
            await store.submit([new_task("d")])
        with pytest.raises(QueueFull):
            await store.submit([new_task("d", key="k")])
        assert await pending(store) == 3

    async def test_what_is_stored_already_is_answered_although_the_queue_is_full(self, store: StateStore) -> None:
        """By its id and by its key; and a conflict is a conflict."""
        await store.set_queue(QUEUE, max_pending=1)
        await submit_one(store, key="k", user_input=1)
        [again] = await store.submit([new_task(key="k", user_input=1)])
        [by_key] = await store.submit([new_task("another", key="k", user_input=1)])
        [other] = await store.submit([new_task("another", key="k", user_input=2)])
        assert (again.created, by_key.task_id, other.conflict) == (False, "task", True)

    async def test_what_is_pending_counts_and_nothing_else(self, store: StateStore, clock: ManualClock) -> None:
        """Delayed ones do; not what runs, waits, is reviewed or has ended. What was there before counts as well."""
        later = clock.now() + timedelta(hours=1)
        await enter(store)
        for number, task_id in enumerate(("runs", "waits", "reviewed", "ended", "back"), start=1):
            await submit_one(store, task_id)
            if number == 3:
                await store.set_queue(QUEUE, max_pending=100)
            attempt = await claimed_by(store, "worker", number, queues=(QUEUE,))
            assert attempt.task.id == task_id
            if task_id == "waits":
                await attempt.apply(move(TaskState.WAITING, waits=(UntilTime(key="t", at=later),)))
            elif task_id == "reviewed":
                await attempt.apply(move(TaskState.REVIEW))
            elif task_id == "ended":
                await attempt.apply(COMPLETE)
            elif task_id == "back":
                await attempt.apply(move(TaskState.PENDING, available_at=later))
        assert await pending(store) == 1
        await submit_one(store, "late", available_at=later)
        await submit_one(store, "over", deadline=clock.now() + timedelta(seconds=1))
        await submit_one(store, "unwanted")
        await submit_one(store, "elsewhere", queue="other")
        assert await pending(store) == 4
        await apply_outside(store, "unwanted", CANCEL)
        clock.advance(1)
        assert (await store.sweep()).failed == ("over",)
        assert await pending(store) == 2

    async def test_what_comes_back_is_never_refused(self, store: StateStore, clock: ManualClock) -> None:
        """A retry, a wake, a take-over, a resume, also of what had ended before there was a limit."""
        await enter(store, "living", lease=10 * LEASE)
        old = await running_task(store, "old", queue=QUEUE)
        await old.apply(move(TaskState.FAILED))
        await store.set_queue(QUEUE, max_pending=0)
        await store.set_queue(QUEUE, max_pending=None)
        attempts = {n: await running_task(store, n, f"worker of {n}", queue=QUEUE) for n in ("retry", "wake", "dead")}
        await store.set_queue(QUEUE, max_pending=0)
        await attempts["retry"].apply(move(TaskState.PENDING))
        wait = UntilTime(key="t", at=clock.now() + timedelta(seconds=1))
        await attempts["wake"].apply(move(TaskState.WAITING, waits=(wait,)))
        clock.advance(LEASE)
        await store.sweep()
        await apply_outside(store, "old", move(TaskState.PENDING))
        assert await pending(store) == 4
        with pytest.raises(QueueFull):
            await store.submit([new_task("another")])
        assert len(await claimed_ids(store, "living")) == 4
        assert await pending(store) == 0

    async def test_a_child_is_refused_by_its_verdict(self, store: StateStore) -> None:
        """With all of its Commit and nothing else of the batch. One that begins again is not refused."""
        await store.set_queue(QUEUE, max_pending=1)
        parent, other = await running_task(store, "parent"), await running_task(store, "other", "worker 2")
        first = await parent.apply(SubmitChild(new_task("child", queue=QUEUE)), WriteStep(step("a")))
        assert first.children[0].created
        refused, applied = await store.commit(
            [
                parent.commit(SubmitChild(new_task("second", queue=QUEUE)), WriteStep(step("b", 2))),
                other.commit(WriteStep(step("c"))),
            ]
        )
        assert (refused.refusal, applied.applied) == (Refusal.FULL, True)
        error = refused.error()
        assert isinstance(error, QueueFull)
        assert (error.queue, error.limit) == (QUEUE, 1)
        assert await store.get("second") is None
        assert [line.key for line in await store.steps("parent")] == ["a"]
        parent.sequence -= 1
        await apply_outside(store, "child", CANCEL)
        await submit_one(store, "in its place")
        child = await stored(store, "child")
        again = ReopenChild(child_id="child", revision=child.revision, reason="again")
        assert (await parent.send(again)).applied
        assert await pending(store) == 2

    async def test_a_task_of_a_schedule_is_never_refused(self, store: StateStore) -> None:
        """A tick must not be lost; it counts."""
        await store.set_queue(QUEUE, max_pending=1)
        for number in range(3):
            await submit_one(store, f"tick {number}", schedule="nightly")
        assert await pending(store) == 3
        with pytest.raises(QueueFull):
            await store.submit([new_task()])

    async def test_only_a_queue_with_a_limit_refuses(self, store: StateStore) -> None:
        """Beside it, any number of tasks is taken."""
        await store.set_queue(QUEUE, max_pending=0)
        await store.submit([new_task(f"task {n}", queue="other") for n in range(20)])
        with pytest.raises(QueueFull):
            await store.submit([new_task("task 20")])

    async def test_settings_without_a_meaning_are_refused(self, store: StateStore) -> None:
        """At the door, and nothing changes."""
        for name, limit in ((QUEUE, -1), (QUEUE, True), (QUEUE, "many"), ("", 1), (QUEUE, 1.5)):
            with row(name, limit), pytest.raises(InvalidValue):
                await store.set_queue(name, max_pending=limit)  # type: ignore[arg-type]
        assert await store.queue_settings() == []

    async def test_no_race_goes_beyond_the_limit(self, store: StateStore) -> None:
        """Many submit at once, alone and several together, while others claim; each answer is the truth."""
        await store.set_queue(QUEUE, max_pending=20)
        await enter(store)

        async def submit(number: int) -> int:
            tasks = [new_task(f"task {number} {n}") for n in range(1 + number % 3)]
            try:
                return len(await store.submit(tasks))
            except QueueFull:
                return 0

        taken = sum(await asyncio.gather(*(submit(number) for number in range(60))))
        assert taken == 20
        assert await pending(store) == 20

        async def claim(number: int) -> int:
            return len(await claimed_ids(store, "worker", number, limit=2))

        counts = await asyncio.gather(claim(1), *(submit(number) for number in range(100, 160)))
        claimed, added = counts[0], sum(counts[1:])
        left = await pending(store)
        assert left == 20 - claimed + added
        assert left <= 20
        assert sum(one.ready for one in await store.queues()) == left
