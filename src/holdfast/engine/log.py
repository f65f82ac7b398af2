"""What the engine says, through the standard library's logging, under ``holdfast``.

INFO tells the life of a task: every move with task id, from, to and reason, retries, take-overs, lost leases.
WARNING is for what somebody should look at. Values of tasks and steps are never logged. The fields also stand on the
record (``record.task_id``, ``record.from_state``, ``record.to_state``, ``record.reason``) for structured handlers.
"""

from __future__ import annotations

import logging

from holdfast.model.operations import Move
from holdfast.model.retry import RetryAt
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

logger = logging.getLogger("holdfast")


def moved(task: Task, move: Move) -> None:
    """A task changed its state."""
    _move(task, task.state, move.to, move.reason)


def claimed(task: Task, worker_id: str) -> None:
    """A worker begins with a task."""
    how = f"taken over, {task.deaths} workers died with it," if task.deaths else "claimed"
    source = TaskState.REVIEW if task.state is TaskState.REVIEW else TaskState.PENDING
    _move(task, source, task.state, f"{how} by {worker_id}")


def _move(task: Task, source: TaskState, target: TaskState, reason: str) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    logger.info(
        "task %s %s: %s -> %s (%s)",
        task.name,
        task.id,
        source,
        target,
        reason,
        extra={"task_id": task.id, "from_state": str(source), "to_state": str(target), "reason": reason},
    )


def step_retried(task: Task, key: str, attempt: int, error: str, decision: RetryAt) -> None:
    """A step failed and will be tried again."""
    logger.info(
        "task %s %s: step %s failed (try %d: %s), again in %.3g s",
        task.name,
        task.id,
        key,
        attempt,
        error,
        decision.delay,
        extra={"task_id": task.id, "step": key},
    )


def fenced(task: Task, why: str) -> None:
    """An attempt lost its lease: said once, and calmly, for nothing is lost."""
    logger.info(
        "task %s %s: stopped here, another worker has it (%s)", task.name, task.id, why, extra={"task_id": task.id}
    )


def not_suspended(task: Task, error: BaseException) -> None:
    """A task could not be suspended and keeps its slot."""
    logger.info("task %s %s: not suspended: %r", task.name, task.id, error, extra={"task_id": task.id})
