"""The Commit of the holder of a task, be it a worker or an agent outside."""

from __future__ import annotations

from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Operation
from holdfast.model.task import Task


def under_lease(task: Task, worker_id: str, number: int, operations: tuple[Operation, ...], *, by: str) -> Commit:
    """Return the Commit with this number under the lease of an incarnation; it is refused once the lease is over."""
    return Commit(task_id=task.id, guard=Held(worker_id, task.fence, number), operations=operations, actor=by)
