"""Moves: every pair of states, checked against the one table of allowed moves."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal, Verdict
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import RequestCancel
from holdfast.model.transitions import MOVES, OPEN, TaskState, Transition
from holdfast.model.worker import Swept
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    acquired_by,
    apply_outside,
    claim,
    claimed_ids,
    enter,
    move,
    outside,
    row,
    running_task,
    send,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot

LEGAL = [(source, target) for source, targets in MOVES.items() for target in targets]
ILLEGAL = [(source, target) for source in TaskState for target in TaskState if target not in MOVES[source]]
"""From every state to every state, also to the same one."""


def _held(pairs: list[tuple[TaskState, TaskState]]) -> list[tuple[TaskState, TaskState]]:
    """Leave out tasks that have ended: no worker can hold them."""
    return [(source, target) for source, target in pairs if source in OPEN]


def _moved(task_id: str, source: TaskState, target: TaskState, *, actor: str, fence: int, at: datetime) -> Transition:
    """Return the line of history of a first move."""
    return Transition(
        task_id=task_id,
        number=2,
        from_state=source,
        to_state=target,
        reason="the test says so",
        actor=actor,
        fence=fence,
        at=at,
    )


class MovesContract(ContractBase):
    """The table of moves, under both guards, and what each kind of move does."""

    async def test_a_legal_move_from_outside(self, store: StateStore, clock: ManualClock) -> None:
        """Applied, logged, and nothing else changes."""
        for source, target in LEGAL:
            with row(source, target):
                task_id = f"{source} to {target}"
                before = await submit_one(store, task_id, state=source)
                clock.advance(1)
                verdict = await send(store, outside(task_id, move(target)))
                assert verdict == Verdict(task_id=task_id, state=target, revision=2)
                now = clock.now()
                assert await stored(store, task_id) == replace(
                    before,
                    state=target,
                    revision=2,
                    updated_at=now,
                    available_at=now if target is TaskState.PENDING else before.available_at,
                    finished_at=now if target.is_terminal else None,
                )
                assert (await store.history(task_id))[1:] == [
                    _moved(task_id, source, target, actor="person", fence=0, at=now)
                ]

    async def test_an_illegal_move_from_outside(self, store: StateStore) -> None:
        """Refused; nothing changes."""
        for source in TaskState:
            await submit_one(store, source, state=source)
        before = await snapshot(store)
        for source, target in ILLEGAL:
            with row(source, target):
                verdict = await send(store, outside(source, move(target)))
                assert (verdict.refusal, verdict.state) == (Refusal.ILLEGAL_MOVE, source)
                assert await snapshot(store) == before

    async def test_a_legal_move_by_the_worker(self, store: StateStore, clock: ManualClock) -> None:
        """The lease is released, except where the work continues."""
        await enter(store, lease=600)
        for source, target in _held(LEGAL):
            with row(source, target):
                task_id = f"{source} to {target}"
                await submit_one(store, task_id, state=source)
                attempt = await acquired_by(store, task_id, "worker")
                clock.advance(1)
                verdict = await attempt.send(move(target))
                owner = "worker" if target in {TaskState.RUNNING, TaskState.REVIEW} else None
                assert verdict == Verdict(task_id=task_id, state=target, revision=3, fence=1, sequence=1, owner=owner)
                now = clock.now()
                assert await stored(store, task_id) == replace(
                    attempt.task,
                    state=target,
                    revision=3,
                    sequence=1,
                    owner=owner,
                    updated_at=now,
                    available_at=now if target is TaskState.PENDING else attempt.task.available_at,
                    finished_at=now if target.is_terminal else None,
                )
                assert (await store.history(task_id))[1:] == [
                    _moved(task_id, source, target, actor="worker", fence=1, at=now)
                ]

    async def test_an_illegal_move_by_the_worker(self, store: StateStore) -> None:
        """Refused; the lease stays."""
        await enter(store)
        attempts = {}
        for source in sorted(OPEN):
            await submit_one(store, source, state=source)
            attempts[source] = await acquired_by(store, source, "worker")
        before = await snapshot(store)
        for source, target in _held(ILLEGAL):
            with row(source, target):
                verdict = await attempts[source].send(move(target))
                attempts[source].sequence -= 1  # a refused Commit does not use its number
                assert (verdict.refusal, verdict.state, verdict.owner) == (Refusal.ILLEGAL_MOVE, source, "worker")
                assert await snapshot(store) == before

    @pytest.mark.parametrize("target", [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED], ids=str)
    async def test_an_ending_replaces_the_outcome(self, store: StateStore, target: TaskState) -> None:
        """For any earlier outcome."""
        await submit_one(store, state=TaskState.REVIEW, result="draft", error="doubt")
        await apply_outside(store, "task", move(target, result={"final": True}))
        task = await stored(store)
        assert (task.result, task.error) == ({"final": True}, None)

    async def test_the_verifier_sees_the_result(self, store: StateStore) -> None:
        """A move to review stores the outcome as well."""
        attempt = await running_task(store)
        await attempt.apply(move(TaskState.REVIEW, result=[1, 2]))
        assert (await stored(store)).result == [1, 2]

    @pytest.mark.parametrize("target", [TaskState.PENDING, TaskState.WAITING], ids=str)
    async def test_a_move_that_ends_nothing_keeps_the_outcome(self, store: StateStore, target: TaskState) -> None:
        """The result in such a Move is ignored."""
        await submit_one(store, state=TaskState.REVIEW, result="draft")
        await apply_outside(store, "task", move(target, result="ignored", error="ignored"))
        task = await stored(store)
        assert (task.result, task.error) == ("draft", None)

    async def test_a_retry_is_delayed_and_counted(self, store: StateStore, clock: ManualClock) -> None:
        """Not before its time, and with one attempt more."""
        later = clock.now() + timedelta(minutes=5)
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.PENDING, available_at=later, counts_attempt=True))
        task = await stored(store)
        assert (task.attempts, task.available_at) == (1, later)
        assert await claim(store, number=2) == []
        assert (await store.sweep()).next_due == later

    async def test_a_rejection_opens_a_new_round(self, store: StateStore) -> None:
        """With the reason as feedback; a later move without one keeps it."""
        await submit_one(store, state=TaskState.REVIEW)
        await apply_outside(
            store, "task", move(TaskState.PENDING, new_round=True, counts_attempt=True, feedback="too slow")
        )
        task = await stored(store)
        assert (task.round, task.attempts, task.feedback) == (2, 1, "too slow")
        await enter(store)
        assert await claimed_ids(store) == ["task"]
        assert (await stored(store)).feedback == "too slow"

    async def test_a_cancel_request_outlives_the_end(self, store: StateStore) -> None:
        """The record keeps why it was stopped."""
        await submit_one(store)
        await apply_outside(store, "task", RequestCancel(reason="enough"), move(TaskState.CANCELLED))
        assert (await stored(store)).cancel_requested == "enough"

    async def test_a_move_to_pending_may_bring_a_new_deadline(self, store: StateStore, clock: ManualClock) -> None:
        """A task that failed by its deadline returns with the new one, and no sweep fails it by the old one."""
        old = clock.now() + timedelta(seconds=10)
        for state in (TaskState.PENDING, TaskState.WAITING, TaskState.REVIEW):
            await submit_one(store, state, state=state, deadline=old)
        clock.advance(10)
        late = ("pending", "review", "waiting")
        assert (await store.sweep()).failed == late
        new = clock.now() + timedelta(seconds=5)
        for task_id in late:
            await apply_outside(store, task_id, move(TaskState.PENDING, deadline=new))
            task = await stored(store, task_id)
            assert (task.state, task.deadline, task.error) == (TaskState.PENDING, new, None)
        assert await store.sweep() == Swept(next_due=new)
        await enter(store)
        assert sorted(await claimed_ids(store)) == sorted(late)

    async def test_a_new_deadline_counts_like_the_first(self, store: StateStore, clock: ManualClock) -> None:
        """It fails the task once it passes; a deadline may also be new to a task, or come in a new round."""
        await submit_one(store, state=TaskState.FAILED)
        new = clock.now() + timedelta(seconds=5)
        await apply_outside(store, "task", move(TaskState.PENDING, deadline=new, new_round=True))
        task = await stored(store)
        assert (task.deadline, task.round) == (new, 2)
        clock.advance(5)
        assert (await store.sweep()).failed == ("task",)

    async def test_a_move_without_a_deadline_keeps_the_one_there_is(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Also if a worker hands the task back, and if another Commit in the batch has a deadline."""
        first, new = (clock.now() + timedelta(seconds=seconds) for seconds in (10, 20))
        attempt = await running_task(store, "held", deadline=first)
        await submit_one(store, "kept", state=TaskState.FAILED, deadline=first)
        await submit_one(store, "given", state=TaskState.FAILED, deadline=first)
        back = move(TaskState.PENDING)
        given = move(TaskState.PENDING, deadline=new)
        commits = [attempt.commit(back), outside("kept", back), outside("given", given)]
        assert all(verdict.applied for verdict in await store.commit(commits))
        found = [(await stored(store, task_id)).deadline for task_id in ("held", "kept", "given")]
        assert found == [first, first, new]

    async def test_a_refused_commit_leaves_the_deadline_alone(self, store: StateStore, clock: ManualClock) -> None:
        """All of a Commit is applied, or nothing."""
        await submit_one(store, state=TaskState.COMPLETED)
        before = await snapshot(store)
        back = move(TaskState.PENDING, deadline=clock.now())
        assert (await send(store, outside("task", back))).refusal is Refusal.ILLEGAL_MOVE
        expecting = outside("task", back, states=frozenset({TaskState.FAILED}))
        assert (await send(store, expecting)).refusal is Refusal.CONFLICT
        assert await snapshot(store) == before

    async def test_only_a_move_to_pending_brings_a_deadline(self, store: StateStore, clock: ManualClock) -> None:
        """In no other state does the task start again."""
        await submit_one(store)
        for to in set(TaskState) - {TaskState.PENDING}:
            with pytest.raises(InvalidValue, match="only a Move to pending"):
                await store.commit([outside("task", move(to, deadline=clock.now()))])
        with pytest.raises(InvalidValue, match="zone"):
            move(TaskState.PENDING, deadline=clock.now().replace(tzinfo=None))
