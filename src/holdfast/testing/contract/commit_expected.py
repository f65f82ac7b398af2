"""Commits from outside any lease: what they expect must still be true."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal, Verdict
from holdfast.model.operations import ApplyPatch, Release, RequestCancel, RequireUndo, WriteOutcome, WriteStep
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    acquired_by,
    apply_outside,
    claimed_ids,
    enter,
    move,
    outside,
    running_task,
    send,
    step,
    stored,
    submit_one,
    without_detail,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot


class ExpectedCommitContract(ContractBase):
    """Commits from outside: what they expect must still be true."""

    async def test_a_commit_that_expects_nothing_is_applied(self, store: StateStore, clock: ManualClock) -> None:
        """It touches no sequence."""
        before = await submit_one(store)
        clock.advance(1)
        verdict = await send(store, outside("task", RequestCancel(reason="enough")))
        assert verdict == Verdict(task_id="task", state=TaskState.PENDING, revision=2, cancel_requested="enough")
        assert await stored(store) == replace(before, revision=2, updated_at=clock.now(), cancel_requested="enough")

    @pytest.mark.parametrize(
        "expected",
        [
            {"states": frozenset({TaskState.PENDING, TaskState.WAITING})},
            {"revision": 1},
            {"version": 0},
            {"states": frozenset({TaskState.PENDING}), "revision": 1, "version": 0},
        ],
        ids=["states", "revision", "version", "all"],
    )
    async def test_what_is_still_true_is_applied(self, store: StateStore, expected: dict[str, Any]) -> None:
        """Each part, and all of them together."""
        await submit_one(store)
        assert (await send(store, outside("task", CANCEL, **expected))).applied

    @pytest.mark.parametrize(
        "expected",
        [
            {"states": frozenset({TaskState.RUNNING})},
            {"states": frozenset()},
            {"revision": 2},
            {"version": 1},
            {"states": frozenset({TaskState.PENDING}), "revision": 1, "version": 7},
        ],
        ids=["states", "no states", "revision", "version", "one of all"],
    )
    async def test_what_is_no_longer_true_is_a_conflict(self, store: StateStore, expected: dict[str, Any]) -> None:
        """Nothing changes."""
        await submit_one(store)
        before = await snapshot(store)
        verdict = await send(store, outside("task", WriteStep(step()), CANCEL, **expected))
        assert without_detail(verdict) == Verdict(
            task_id="task", refusal=Refusal.CONFLICT, state=TaskState.PENDING, revision=1
        )
        assert await snapshot(store) == before

    async def test_a_leased_task_is_not_moved_from_outside(self, store: StateStore) -> None:
        """The verdict names the worker that holds it."""
        await running_task(store)
        before = await snapshot(store)
        verdict = await send(store, outside("task", CANCEL))
        assert (verdict.refusal, verdict.owner) == (Refusal.LEASED, "worker")
        assert await snapshot(store) == before

    async def test_a_leased_task_is_written_to_from_outside(self, store: StateStore) -> None:
        """Everything but a Move: a cancel request, a patch, an answer."""
        attempt = await running_task(store)
        await apply_outside(store, "task", RequestCancel(reason="enough"), ApplyPatch(body=b"{}", author="alice"))
        verdict = await attempt.apply(WriteStep(step()))
        assert (verdict.cancel_requested, verdict.version, verdict.sequence) == ("enough", 1, 1)

    async def test_a_task_whose_cancel_is_requested_is_due(self, store: StateStore, clock: ManualClock) -> None:
        """A worker may have to handle the cancel, and must not wait until the task would have been due."""
        later = clock.now() + timedelta(hours=1)
        before = await submit_one(store, available_at=later)
        await enter(store)
        assert await claimed_ids(store) == []
        await apply_outside(store, "task", RequestCancel(reason="enough"))
        assert await stored(store) == replace(before, revision=2, cancel_requested="enough", available_at=clock.now())
        assert await claimed_ids(store, number=2) == ["task"]

    async def test_a_held_task_whose_cancel_is_requested_is_due_once_it_is_given_back(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """The worker that holds it keeps it."""
        await submit_one(store, available_at=clock.now() + timedelta(hours=1))
        await enter(store)
        attempt = await acquired_by(store, "task", "worker")
        await apply_outside(store, "task", RequestCancel(reason="enough"))
        assert await claimed_ids(store) == []
        await attempt.apply(Release())
        assert await claimed_ids(store, number=2) == ["task"]

    async def test_what_has_begun_or_is_due_keeps_its_time(self, store: StateStore, clock: ManualClock) -> None:
        """A cancel does not change the place of a task that is already in the queue."""
        waiting = await submit_one(store, "due")
        await running_task(store, "running")
        running = await stored(store, "running")
        clock.advance(5)
        for task_id in ("due", "running"):
            await apply_outside(store, task_id, RequestCancel(reason="enough"))
        assert (await stored(store, "due")).available_at == waiting.available_at
        assert (await stored(store, "running")).available_at == running.available_at

    async def test_a_resent_request_is_a_duplicate(self, store: StateStore) -> None:
        """Even if what it expected is no longer true because it was applied itself."""
        await submit_one(store)
        commit = outside("task", CANCEL, states=frozenset({TaskState.PENDING}), revision=1)
        verdict = await send(store, commit)
        before = await snapshot(store)
        assert await send(store, commit) == replace(verdict, duplicate=True)
        assert await snapshot(store) == before

    async def test_a_refused_request_can_be_sent_again(self, store: StateStore) -> None:
        """Only applied requests are stored."""
        attempt = await running_task(store)
        commit = outside("task", CANCEL)
        assert (await send(store, commit)).refusal is Refusal.LEASED
        await attempt.apply(Release())
        verdict = await send(store, commit)
        assert verdict.applied
        assert not verdict.duplicate

    async def test_a_request_belongs_to_its_task(self, store: StateStore) -> None:
        """The same request for another task is another request."""
        await submit_one(store, "a")
        await submit_one(store, "b")
        for task_id in ("a", "b"):
            verdict = await send(store, outside(task_id, CANCEL, request="same"))
            assert not verdict.duplicate

    async def test_a_cancel_request_is_not_replaced(self, store: StateStore) -> None:
        """The first reason stays."""
        await submit_one(store)
        await apply_outside(store, "task", RequestCancel(reason="first"))
        await apply_outside(store, "task", RequestCancel(reason="second"))
        assert (await stored(store)).cancel_requested == "first"

    async def test_an_outcome_is_written_without_a_move(self, store: StateStore) -> None:
        """Both parts are replaced; None clears a part."""
        await submit_one(store)
        await apply_outside(store, "task", WriteOutcome(result={"half": "done"}))
        assert (await stored(store)).result == {"half": "done"}
        await apply_outside(store, "task", WriteOutcome(error="broken"))
        task = await stored(store)
        assert (task.result, task.error, task.state) == (None, "broken", TaskState.PENDING)

    async def test_undo_is_required_and_waived(self, store: StateStore) -> None:
        """The last write sets the flag."""
        await submit_one(store)
        for required in (True, False):
            await apply_outside(store, "task", RequireUndo(required))
            assert (await stored(store)).must_undo is required

    async def test_a_retry_by_hand_clears_the_old_outcome(self, store: StateStore, clock: ManualClock) -> None:
        """From failed back to the queue, as if it had not ended."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.FAILED, error="no luck"))
        clock.advance(1)
        await apply_outside(store, "task", move(TaskState.PENDING, new_round=True, feedback="try harder"))
        assert await stored(store) == replace(
            attempt.task,
            state=TaskState.PENDING,
            owner=None,
            sequence=1,
            revision=4,
            round=2,
            feedback="try harder",
            available_at=clock.now(),
            updated_at=clock.now(),
        )
        assert await claimed_ids(store, number=2) == ["task"]
