"""Pauses: nothing new begins of a queue, a name or a task until it is unpaused."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.operations import RequestCancel, UntilTime, WriteStep
from holdfast.model.pause import Pause
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    LEASE,
    NAME,
    apply_outside,
    claimed_by,
    claimed_ids,
    enter,
    move,
    row,
    running_task,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import START, ContractBase
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.snapshot import snapshot

BY_KIND = ("queue:default", f"task:{NAME}", "task")
"""A pause of each kind, all of which the usual task obeys."""


class PausesContract(ContractBase):
    """pause, unpause, pauses."""

    async def test_what_is_paused_is_listed(self, store: StateStore, clock: ManualClock) -> None:
        """By subject, with who did it and why; a second pause changes nothing."""
        await submit_one(store)
        first = await store.pause("queue:default", by="ann", reason="the provider is down")
        assert first == Pause(subject="queue:default", at=START, by="ann", reason="the provider is down")
        clock.advance(1)
        assert await store.pause("queue:default", by="bob") == first
        alone = await store.pause("task", by="bob")
        named = await store.pause("task:\u00e9 \U0001f600: x", by="bob")
        assert await store.pauses() == [first, alone, named]
        assert await store.unpause("queue:default")
        assert not await store.unpause("queue:default")
        assert await store.pauses() == [alone, named]

    async def test_nothing_of_it_is_claimed_until_it_is_unpaused(self, store: StateStore) -> None:
        """Of a queue, of a name, of a single task; by one line and by many. What is beside it is claimed."""
        await enter(store)
        number = 0
        for subject in BY_KIND:
            for names in ((NAME,), (NAME, "other name")):
                with row(subject, names):
                    await submit_one(store, f"{subject} {len(names)}")
                    await submit_one(store, f"beside {subject} {len(names)}", name="other name", queue="other queue")
                    paused = f"{subject} {len(names)}" if subject == "task" else subject
                    await store.pause(paused, by="person")
                    number += 1
                    both = ("default", "other queue")
                    beside = await claimed_ids(store, number=number, queues=both, names=(NAME, "other name"))
                    assert beside == [f"beside {subject} {len(names)}"]
                    number += 1
                    assert await claimed_ids(store, number=number, names=names) == []
                    assert await store.unpause(paused)
                    number += 1
                    assert await claimed_ids(store, number=number, names=names) == [f"{subject} {len(names)}"]

    async def test_it_is_not_leased_by_name_either(self, store: StateStore) -> None:
        """The refusal of acquire names the pause."""
        await submit_one(store)
        await enter(store)
        for subject in BY_KIND:
            with row(subject):
                await store.pause(subject, by="person")
                before = await snapshot(store)
                with pytest.raises(Conflict, match=f"unpause {subject}"):
                    await store.acquire("task", "worker")
                assert await snapshot(store) == before
                await store.unpause(subject)
        assert (await store.acquire("task", "worker")).task.owner == "worker"

    async def test_what_is_held_already_stays_held(self, store: StateStore) -> None:
        """Its holder may write, and learns of the pause of this very task: by each verdict, and by its heartbeat."""
        attempt = await running_task(store, queue="default")
        for subject in BY_KIND:
            with row(subject):
                await store.pause(subject, by="person")
                assert (await store.acquire("task", "worker")).task.owner == "worker"
                is_own = subject == "task"
                for write in ((WriteStep(step()),), (WriteStep(step()), WriteStep(step("b", 2)))):
                    assert (await attempt.apply(*write)).paused is is_own
                assert (await store.heartbeat("worker")).paused == ({"task"} if is_own else set())
                await store.unpause(subject)
        assert not (await attempt.apply(WriteStep(step()))).paused
        assert (await store.heartbeat("worker")).paused == frozenset()

    async def test_a_batch_tells_each_holder_of_its_own_task(self, store: StateStore) -> None:
        """One that is paused, between many that are not."""
        attempts = [await running_task(store, f"task {n}", f"worker {n}") for n in range(30)]
        await store.pause("task 7", by="person")
        for operations in ((WriteStep(step()),), (COMPLETE,)):
            verdicts = await store.commit([attempt.commit(*operations) for attempt in attempts])
            assert all(verdict.applied for verdict in verdicts)
            assert [n for n, verdict in enumerate(verdicts) if verdict.paused] == [7]

    async def test_a_cancel_comes_before_a_pause(self, store: StateStore) -> None:
        """A holder that is to stop for good need not know of the pause."""
        await running_task(store)
        await store.pause("task", by="person")
        await apply_outside(store, "task", RequestCancel(reason="enough"))
        beat = await store.heartbeat("worker")
        assert beat.cancel_requested == {"task"}
        assert not beat.paused

    async def test_it_stays_paused_however_it_comes_back(self, store: StateStore, clock: ManualClock) -> None:
        """Handed back, taken back from a dead worker, delayed and due, woken, in review: no claim gets it."""
        await enter(store, "other", lease=10 * LEASE)
        later = clock.now() + timedelta(seconds=1)
        names = ("back", "dead", "wait")
        attempts = {name: await running_task(store, name, f"worker of {name}", queue="default") for name in names}
        review = await running_task(store, "review", "worker of review", queue="default")
        await submit_one(store, "late", available_at=later)
        for task_id in (*attempts, "late", "review"):
            await store.pause(task_id, by="person")
        await attempts["back"].apply(move(TaskState.PENDING))
        await attempts["wait"].apply(move(TaskState.WAITING, waits=(UntilTime(key="timer", at=later),)))
        await review.apply(move(TaskState.REVIEW))
        clock.advance(LEASE)
        swept = await store.sweep()
        assert set(swept.recovered) == {"dead", "review"}
        assert swept.woken == ("wait",)
        states = {task_id: (await stored(store, task_id)).state for task_id in (*attempts, "late", "review")}
        assert states.pop("review") is TaskState.REVIEW
        assert set(states.values()) == {TaskState.PENDING}
        assert await claimed_ids(store, "other") == []
        for pause in await store.pauses():
            await store.unpause(pause.subject)
        assert set(await claimed_ids(store, "other", 2)) == {"back", "wait", "late", "review", "dead"}

    async def test_its_deadline_passes_and_a_cancel_ends_it(self, store: StateStore, clock: ManualClock) -> None:
        """Neither waits until it is unpaused. The pause is still there when the task is begun again."""
        await submit_one(store, "late", deadline=clock.now() + timedelta(seconds=1))
        await submit_one(store, "unwanted")
        for task_id in ("late", "unwanted"):
            await store.pause(task_id, by="person")
        clock.advance(1)
        assert (await store.sweep()).failed == ("late",)
        await apply_outside(store, "unwanted", CANCEL)
        assert (await stored(store, "unwanted")).state is TaskState.CANCELLED
        await enter(store)
        await apply_outside(store, "late", move(TaskState.PENDING, deadline=clock.now() + timedelta(days=1)))
        assert await claimed_ids(store) == []
        await store.unpause("late")
        assert await claimed_ids(store, number=2) == ["late"]

    async def test_a_paused_suspect_blocks_no_other_task(self, store: StateStore, clock: ManualClock) -> None:
        """No worker makes room for what it cannot get."""
        for number in range(2):
            await enter(store, f"victim {number}")
            if number == 0:
                await submit_one(store)
            await claimed_by(store, f"victim {number}", queues=("default",))
            clock.advance(LEASE)
            await store.sweep()
        await enter(store)
        asked = Claim(worker_id="worker", number=1, limit=1, names=(NAME,), alone=True)
        assert await store.has_suspect(asked)
        for subject in BY_KIND:
            with row(subject):
                await store.pause(subject, by="person")
                assert not await store.has_suspect(asked)
                assert await store.claim(asked) == []
                assert subject != "task" or not (await store.heartbeat("worker")).suspects
                await store.unpause(subject)
        assert (await store.heartbeat("worker")).suspects
        assert len(await store.claim(asked)) == 1

    async def test_the_queue_lists_what_a_pause_of_all_keeps_back(self, store: StateStore, clock: ManualClock) -> None:
        """But not what is paused itself: it will not come in that order, or at all."""
        later = clock.now() + timedelta(hours=1)
        for task_id, due in (("a", None), ("b", None), ("c", later), ("d", later)):
            await submit_one(store, task_id, available_at=due)
        for subject in ("queue:default", f"task:{NAME}", "b", "d"):
            await store.pause(subject, by="person")
        assert [task.id for task in (await store.queued()).items] == ["a", "c"]

    async def test_a_pause_goes_with_its_task(self, store: StateStore, clock: ManualClock) -> None:
        """Pruned, it leaves nothing behind; other pauses stay."""
        await submit_one(store)
        kept = await store.pause("queue:default", by="person")
        await store.pause("task", by="person")
        await apply_outside(store, "task", CANCEL)
        clock.advance(1)
        assert (await store.prune(timedelta(0))).tasks == 1
        assert await store.pauses() == [kept]

    async def test_only_what_is_there_can_be_paused(self, store: StateStore) -> None:
        """A task that is not stored, or has ended, is refused in words; a queue and a name may be empty yet."""
        await submit_one(store)
        await apply_outside(store, "task", CANCEL)
        before = await snapshot(store)
        with pytest.raises(NotFound, match="queue:<name>"):
            await store.pause("quue:default", by="person")
        with pytest.raises(Conflict, match="cancelled"):
            await store.pause("task", by="person")
        for subject, by in (("queue:", "person"), ("task:", "person"), ("", "person"), ("queue:a", "")):
            with row(subject, by), pytest.raises(InvalidValue):
                await store.pause(subject, by=by)
        assert await snapshot(store) == before
        assert (await store.pause("queue:none yet", by="person")).subject == "queue:none yet"

    async def test_an_end_of_a_pause_is_hinted(self, store: StateStore) -> None:
        """So that an idle worker claims at once; and who watches a task sees its pause."""
        await submit_one(store)
        await hints_of(store, store.pause("task", by="person"), "task:task")
        await hints_of(store, store.unpause("task"), "task:task", "queue:default")
        await store.pause("queue:default", by="person")
        await hints_of(store, store.unpause("queue:default"), "queue:default")

    async def test_no_claim_begins_after_a_pause(self, store: StateStore) -> None:
        """Many claim while it is paused. When the pause has returned, nothing more is leased, in any process."""
        workers = [await enter(store, f"worker {n}") for n in range(8)]
        for n in range(200):
            await submit_one(store, f"task {n:03}")
        leased: list[str] = []

        async def claim_on(worker_id: str) -> None:
            for number in range(1, 6):
                leased.extend(await claimed_ids(store, worker_id, number, limit=1))

        claiming = [asyncio.create_task(claim_on(worker_id)) for worker_id in workers]
        await asyncio.sleep(0)
        await store.pause("queue:default", by="person")
        held = {lease.task_id for worker_id in workers for lease in await store.owned(worker_id)}
        await asyncio.gather(*claiming)
        assert set(leased) == held
        assert await claimed_ids(store, "worker 0", 6) == []
