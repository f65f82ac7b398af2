"""History: every move of a task, first to last."""

from __future__ import annotations

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.operations import WriteStep
from holdfast.model.transitions import TaskState, Transition
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    LEASE,
    apply_outside,
    claimed_by,
    enter,
    move,
    outside,
    running_task,
    send,
    step,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase


class HistoryContract(ContractBase):
    """The log of moves."""

    async def test_a_life_from_beginning_to_end(self, store: StateStore, clock: ManualClock) -> None:
        """Submitted, claimed, taken back, claimed again, reviewed, rejected, claimed, completed."""
        start = clock.now()
        await running_task(store, queue="default", actor="alice")
        clock.advance(LEASE)
        await store.sweep()
        await enter(store, "second")
        second = await claimed_by(store, "second")
        await second.apply(move(TaskState.REVIEW, reason="work done"))
        await second.apply(move(TaskState.PENDING, reason="rejected", new_round=True))
        third = await claimed_by(store, "second", 2)
        await third.apply(move(TaskState.COMPLETED, reason="work done"))
        history = await store.history("task")
        assert [(t.from_state, t.to_state, t.reason, t.actor, t.fence) for t in history] == [
            (None, TaskState.PENDING, "submitted", "alice", 0),
            (TaskState.PENDING, TaskState.RUNNING, "claimed", "worker", 1),
            (TaskState.RUNNING, TaskState.PENDING, "its worker died", "sweep", 2),
            (TaskState.PENDING, TaskState.RUNNING, "claimed", "second", 3),
            (TaskState.RUNNING, TaskState.REVIEW, "work done", "second", 3),
            (TaskState.REVIEW, TaskState.PENDING, "rejected", "second", 3),
            (TaskState.PENDING, TaskState.RUNNING, "claimed", "second", 4),
            (TaskState.RUNNING, TaskState.COMPLETED, "work done", "second", 4),
        ]
        assert [t.number for t in history] == list(range(1, 9))
        assert {t.task_id for t in history} == {"task"}
        assert [t.at for t in history] == [start] * 2 + [clock.now()] * 6

    async def test_only_moves_are_logged(self, store: StateStore) -> None:
        """A Commit without a move adds no line."""
        await submit_one(store)
        await apply_outside(store, "task", WriteStep(step()))
        assert len(await store.history("task")) == 1

    async def test_a_refused_move_leaves_no_line(self, store: StateStore) -> None:
        """It did not happen."""
        await submit_one(store)
        verdict = await send(store, outside("task", move(TaskState.COMPLETED)))
        assert verdict.refusal is Refusal.ILLEGAL_MOVE
        assert len(await store.history("task")) == 1

    async def test_words_of_people_are_kept(self, store: StateStore, clock: ManualClock) -> None:
        """Reasons and actors are any text a person writes."""
        await submit_one(store)
        reason, actor = "Ünï ✓ 'quoted' \"twice\" 100% \\ back", "Алиса O'Neil"
        await send(store, outside("task", move(TaskState.CANCELLED, reason=reason), actor=actor))
        assert (await store.history("task"))[-1] == Transition(
            task_id="task",
            number=2,
            from_state=TaskState.PENDING,
            to_state=TaskState.CANCELLED,
            reason=reason,
            actor=actor,
            fence=0,
            at=clock.now(),
        )

    async def test_a_task_that_is_not_there_has_none(self, store: StateStore) -> None:
        """An empty list, not an error."""
        assert await store.history("missing") == []
