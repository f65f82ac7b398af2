"""Cancelling a task and its children, from any process.

First the request is recorded on the task. If a worker holds the task, that worker stops it at the next durable point.
Otherwise the caller cancels it here. Children are cancelled before their parent: if a cancel is interrupted, a second
call finds what is left.
"""

from __future__ import annotations

from holdfast.engine.runtime import log
from holdfast.model.commit import Commit, Expect, Refusal, Verdict
from holdfast.model.errors import HoldfastError
from holdfast.model.operations import Move, Operation, RequestCancel
from holdfast.model.queries import TaskFilter
from holdfast.model.transitions import OPEN, TaskState
from holdfast.store.base import StateStore

_PAGE = 200


async def cancel(store: StateStore, task_id: str, reason: str, *, by: str, revision: int | None = None) -> TaskState:
    """Cancel a task and its children; return its state now. With ``revision``, only if it has not changed since.

    The state is ``cancelled`` if no worker held the task; otherwise its worker will stop it. An ended task stays as it
    is.
    """
    asked = await _commit(store, task_id, by, RequestCancel(reason=reason), revision=revision)
    if asked.refusal is Refusal.CONFLICT:
        return _state(asked)  # the task has ended
    if not asked.applied:
        raise asked.error()
    if asked.owner is not None:
        return _state(asked)
    await cancel_children(store, task_id, reason, by=by)
    if (task := await store.get(task_id)) is not None and task.must_undo:
        await store.unpause(task_id)  # its steps are undone now, however long it would have been paused
        return await _wake_to_undo(store, task_id, by)
    moved = await _commit(store, task_id, by, Move(to=TaskState.CANCELLED, reason=reason))
    if moved.applied:
        log.moved_by_hand(task_id, TaskState.CANCELLED, f"{reason}, by {by}")
    if moved.applied or moved.refusal in {Refusal.CONFLICT, Refusal.LEASED}:
        return _state(moved)  # LEASED: a worker has claimed the task meanwhile, and sees the request
    raise moved.error()


async def cancel_children(store: StateStore, task_id: str, reason: str, *, by: str) -> None:
    """Cancel every open child of a task, and their children."""
    after = None
    while True:
        page = await store.find(
            TaskFilter(parent_id=task_id, states=OPEN), limit=_PAGE, after=after, newest_first=False
        )
        for child in page.items:
            await cancel(store, child.id, reason, by=by)
        after = page.next
        if after is None:
            return


async def _wake_to_undo(store: StateStore, task_id: str, by: str) -> TaskState:
    """Put the task back into the queue with the cancel request on it: only a worker can undo its steps."""
    verdict = await _commit(
        store,
        task_id,
        by,
        Move(to=TaskState.PENDING, reason="cancel requested"),
        states=frozenset({TaskState.WAITING}),
    )
    return _state(verdict)


async def _commit(
    store: StateStore,
    task_id: str,
    by: str,
    operation: Operation,
    *,
    states: frozenset[TaskState] = OPEN,
    revision: int | None = None,
) -> Verdict:
    guard = Expect(states=states, revision=revision)
    [verdict] = await store.commit([Commit(task_id=task_id, guard=guard, operations=(operation,), actor=by)])
    return verdict


def _state(verdict: Verdict) -> TaskState:
    if verdict.state is None:
        raise verdict.error() if not verdict.applied else HoldfastError(f"task {verdict.task_id} has no state")
    return verdict.state
