"""Commits of a worker: fenced, numbered, and safe to send again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.operations import ApplyPatch, Operation, Release, WriteStep
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    LEASE,
    claimed_by,
    claimed_ids,
    enter,
    move,
    outside,
    running_task,
    send,
    step,
    stored,
    without_detail,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot


class FencedCommitContract(ContractBase):
    """Commits of a worker, under its lease."""

    async def test_an_applied_commit_counts_once(self, store: StateStore, clock: ManualClock) -> None:
        """One revision, one number, one moment."""
        attempt = await running_task(store)
        clock.advance(1)
        verdict = await attempt.send(WriteStep(step()), WriteStep(step("apply", 2)))
        assert verdict == Verdict(
            task_id="task", state=TaskState.RUNNING, fence=1, sequence=1, revision=3, owner="worker"
        )
        assert await stored(store) == replace(attempt.task, sequence=1, revision=3, updated_at=clock.now())
        assert await store.steps("task") == [step(), step("apply", 2)]

    async def test_a_commit_of_nothing_is_applied(self, store: StateStore) -> None:
        """It still uses its number."""
        attempt = await running_task(store)
        assert (await attempt.apply()).sequence == 1

    async def test_a_workers_own_older_fence_is_superseded(self, store: StateStore) -> None:
        """The same worker holds the task again: Commits of its earlier lease must not be applied under this one."""
        first = await running_task(store, queue="default")
        await first.apply(move(TaskState.PENDING))
        again = await claimed_by(store, "worker", number=2)
        first.sequence = again.sequence  # the number alone would fit
        assert (await first.send(WriteStep(step()))).refusal is Refusal.SUPERSEDED
        assert await store.steps("task") == []
        await again.apply(WriteStep(step()))

    async def test_a_stale_fence_is_superseded(self, store: StateStore, clock: ManualClock) -> None:
        """A worker that slept through its lease can change nothing, and the verdict names who holds the task."""
        sleeper = await running_task(store, queue="default")
        clock.advance(LEASE)
        await store.sweep()
        await enter(store, "next")
        await claimed_by(store, "next")
        before = await snapshot(store)
        verdict = await sleeper.send(WriteStep(step()), COMPLETE)
        assert without_detail(verdict) == Verdict(
            task_id="task",
            refusal=Refusal.SUPERSEDED,
            state=TaskState.RUNNING,
            fence=3,
            revision=4,
            owner="next",
        )
        assert await snapshot(store) == before

    async def test_the_wrong_owner_is_superseded(self, store: StateStore) -> None:
        """The right fence is not enough."""
        attempt = await running_task(store)
        thief = replace(attempt.commit(COMPLETE), guard=replace(attempt.guard(1), owner="thief"))
        assert (await send(store, thief)).refusal is Refusal.SUPERSEDED

    async def test_a_fence_of_the_future_is_superseded(self, store: StateStore) -> None:
        """Only the fence on the row counts."""
        attempt = await running_task(store)
        forged = replace(attempt.commit(COMPLETE), guard=replace(attempt.guard(1), fence=2))
        assert (await send(store, forged)).refusal is Refusal.SUPERSEDED

    async def test_a_missing_number_is_out_of_order(self, store: StateStore) -> None:
        """Commits of one fence are applied in order, without gaps."""
        attempt = await running_task(store)
        before = await snapshot(store)
        early = replace(attempt.commit(WriteStep(step())), guard=attempt.guard(2))
        assert (await send(store, early)).refusal is Refusal.OUT_OF_ORDER
        assert await snapshot(store) == before

    async def test_a_task_that_is_not_there(self, store: StateStore) -> None:
        """The verdict has no further fields."""
        from_worker = Commit(task_id="missing", guard=Held(owner="w", fence=1, sequence=1), operations=(COMPLETE,))
        for commit in (outside("missing", CANCEL), outside("missing", revision=1), from_worker):
            verdict = await send(store, commit)
            assert without_detail(verdict) == Verdict(task_id="missing", refusal=Refusal.NOT_FOUND)

    async def test_a_resent_commit_is_a_duplicate(self, store: StateStore, clock: ManualClock) -> None:
        """The verdict shows the task as it is, and nothing is applied twice."""
        attempt = await running_task(store)
        first = attempt.commit(WriteStep(step()), ApplyPatch(body=b"{}", author="a"))
        verdict = await send(store, first)
        before = await snapshot(store)
        clock.advance(1)
        assert await send(store, first) == replace(verdict, duplicate=True)
        assert await snapshot(store) == before

    async def test_an_earlier_number_is_a_duplicate_too(self, store: StateStore) -> None:
        """For any number of later Commits."""
        attempt = await running_task(store)
        first = attempt.commit(WriteStep(step()))
        await send(store, first)
        latest = await attempt.apply(WriteStep(step("apply", 2)))
        assert await send(store, first) == replace(latest, duplicate=True)

    @pytest.mark.parametrize(
        "ending",
        [
            COMPLETE,
            move(TaskState.FAILED, error="no"),
            CANCEL,
            move(TaskState.WAITING),
            move(TaskState.PENDING),
            Release(),
        ],
        ids=["completed", "failed", "cancelled", "waiting", "pending", "released"],
    )
    async def test_a_resent_last_commit_is_a_duplicate(self, store: StateStore, ending: Operation) -> None:
        """It released the lease, so duplicates must be recognised before owner and state are checked."""
        attempt = await running_task(store)
        last = attempt.commit(WriteStep(step()), ending)
        verdict = await send(store, last)
        assert verdict.applied
        assert verdict.owner is None
        assert await send(store, last) == replace(verdict, duplicate=True)

    async def test_after_giving_the_lease_back_nothing_more_is_applied(self, store: StateStore) -> None:
        """A Commit that was never sent before finds no lease."""
        attempt = await running_task(store)
        await attempt.apply(COMPLETE)
        assert (await attempt.send(WriteStep(step()))).refusal is Refusal.SUPERSEDED

    async def test_a_resent_commit_of_an_older_fence_is_superseded(self, store: StateStore) -> None:
        """The numbers of an older fence are no longer known; its results are in the journal."""
        attempt = await running_task(store, queue="default")
        first = attempt.commit(move(TaskState.PENDING))
        await send(store, first)
        await claimed_by(store, "worker", 2)
        assert (await send(store, first)).refusal is Refusal.SUPERSEDED

    async def test_an_illegal_move_is_refused_alone(self, store: StateStore) -> None:
        """Its number can be used for the next try."""
        attempt = await running_task(store)
        before = await snapshot(store)
        refused = await send(store, replace(attempt.commit(), operations=(WriteStep(step()), move(TaskState.RUNNING))))
        assert refused.refusal is Refusal.ILLEGAL_MOVE
        assert "running" in refused.detail
        assert await snapshot(store) == before
        attempt.sequence = 0
        await attempt.apply(WriteStep(step()))

    async def test_releasing_keeps_the_state(self, store: StateStore, clock: ManualClock) -> None:
        """A task that runs without a lease is moved only by a person."""
        attempt = await running_task(store)
        clock.advance(1)
        verdict = await attempt.apply(Release())
        assert verdict == Verdict(task_id="task", state=TaskState.RUNNING, fence=1, sequence=1, revision=3)
        assert await stored(store) == replace(attempt.task, owner=None, sequence=1, revision=3, updated_at=clock.now())
        assert await store.owned("worker") == []

    async def test_a_released_review_is_claimable(self, store: StateStore) -> None:
        """Done and handed over in one Commit."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(Release(), move(TaskState.REVIEW))
        await enter(store, "verifier")
        assert await claimed_ids(store, "verifier") == ["task"]
