"""One Commit: under a lease, and made so that a refusal is raised."""

from __future__ import annotations

from holdfast.model.commit import Commit, Held, Verdict
from holdfast.model.operations import Operation
from holdfast.model.task import Task
from holdfast.store.base import StateStore


def under_lease(task: Task, worker_id: str, number: int, operations: tuple[Operation, ...], *, by: str) -> Commit:
    """Return the Commit with this number of the holder of the task: a worker, or an agent outside."""
    return Commit(task_id=task.id, guard=Held(worker_id, task.fence, number), operations=operations, actor=by)


async def commit_or_raise(store: StateStore, commit: Commit) -> Verdict:
    """Make a Commit durable. Raises what the store refuses it for."""
    [verdict] = await store.commit([commit])
    if not verdict.applied:
        raise verdict.error()
    return verdict
