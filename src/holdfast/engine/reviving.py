"""Bringing failed tasks back: resume goes on where it stopped, retry starts over."""

from __future__ import annotations

from holdfast.engine import log
from holdfast.engine.journal import reopened
from holdfast.model.commit import Commit, Expect, Refusal, Verdict
from holdfast.model.errors import Conflict
from holdfast.model.failure import Failure
from holdfast.model.operations import Move, Operation, WriteStep
from holdfast.model.step import StepState
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore


async def resume(store: StateStore, task_id: str, *, actor: str) -> None:
    """Put a failed task back into its queue, in the same round: completed steps replay, the one that ended it runs.

    A task that has not ended, or is completed, is left as it is. Raises Conflict if it was cancelled: that is final.
    """
    loaded = await store.load(task_id)
    if loaded.task.state is TaskState.CANCELLED:
        raise Conflict(f"task {task_id} was cancelled, which is final; submit it anew")
    if loaded.task.state is not TaskState.FAILED:
        return
    ended_by = set(Failure.from_json(loaded.task.error).steps)
    again: list[Operation] = [
        WriteStep(reopened(step))
        for step in loaded.steps
        if step.key in ended_by and step.round == loaded.task.round and step.state is StepState.FAILED
    ]
    move = Move(to=TaskState.PENDING, reason=f"resumed by {actor}")
    if (verdict := await _revive(store, task_id, actor, *again, move)).refusal is Refusal.CONFLICT:
        return  # somebody else was faster
    if not verdict.applied:
        raise verdict.error()


async def retry(store: StateStore, task_id: str, *, actor: str, feedback: str | None = None) -> None:
    """Put a failed task back into its queue in a new round: its steps run again, with ``feedback`` for them.

    Raises Conflict unless it has failed.
    """
    move = Move(to=TaskState.PENDING, reason=f"retried by {actor}", new_round=True, feedback=feedback)
    verdict = await _revive(store, task_id, actor, move)
    if not verdict.applied:
        raise verdict.error()


async def _revive(store: StateStore, task_id: str, actor: str, *operations: Operation) -> Verdict:
    guard = Expect(states=frozenset({TaskState.FAILED}))
    [verdict] = await store.commit([Commit(task_id=task_id, guard=guard, operations=operations, actor=actor)])
    if verdict.applied:
        log.moved_by_hand(task_id, TaskState.PENDING, next(op.reason for op in operations if isinstance(op, Move)))
    return verdict
