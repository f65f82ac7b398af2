"""The Commit of the holder of a task: a worker, or an agent outside."""

from __future__ import annotations

from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Operation
from holdfast.model.task import Task


def under_lease(task: Task, worker_id: str, number: int, operations: tuple[Operation, ...], *, by: str) -> Commit:
    """Return the Commit with this number under a worker's lease. The store refuses it after the lease has ended."""
    return Commit(task_id=task.id, guard=Held(worker_id, task.fence, number), operations=operations, actor=by)
