"""Bringing failed tasks back: resume goes on where it stopped, retry starts over."""

from __future__ import annotations

from holdfast.engine.outcome import reopened
from holdfast.model.commit import Commit, Expect, Refusal
from holdfast.model.failure import Failure
from holdfast.model.operations import Move, Operation, WriteStep
from holdfast.model.step import StepState
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore


async def resume(store: StateStore, task_id: str, *, actor: str) -> None:
    """Put a failed task back into its queue, in the same round: completed steps replay, the one that ended it runs.

    A task that has not ended, or is completed, is left as it is.
    """
    loaded = await store.load(task_id)
    if loaded.task.state is not TaskState.FAILED:
        return
    ended_by = set(Failure.from_json(loaded.task.error).steps)
    again: list[Operation] = [
        WriteStep(reopened(step))
        for step in loaded.steps
        if step.key in ended_by and step.round == loaded.task.round and step.state is StepState.FAILED
    ]
    await _revive(store, task_id, actor, *again, Move(to=TaskState.PENDING, reason=f"resumed by {actor}"))


async def retry(store: StateStore, task_id: str, *, actor: str, feedback: str | None = None) -> None:
    """Put a failed task back into its queue in a new round: its steps run again, with ``feedback`` for them.

    Raises Conflict unless it has failed.
    """
    move = Move(to=TaskState.PENDING, reason=f"retried by {actor}", new_round=True, feedback=feedback)
    await _revive(store, task_id, actor, move)


async def _revive(store: StateStore, task_id: str, actor: str, *operations: Operation) -> None:
    guard = Expect(states=frozenset({TaskState.FAILED}))
    [verdict] = await store.commit([Commit(task_id=task_id, guard=guard, operations=operations, actor=actor)])
    if verdict.applied or (verdict.refusal is Refusal.CONFLICT and verdict.state is TaskState.PENDING):
        return  # somebody else was faster
    raise verdict.error()
