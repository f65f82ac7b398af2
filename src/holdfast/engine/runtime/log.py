"""The log lines of the engine, in the standard library's logging, under ``holdfast``.

INFO is for the life of a task: its changes of state with task id, from, to and reason, its retries, take-overs and lost
leases. WARNING is for what a person should look at, for example a failed task. Values of tasks and steps are never
logged. The fields are also attributes of the record (``record.task_id``, ``record.from_state``, ``record.to_state``,
``record.reason``), for structured handlers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.doubt import Decision
from holdfast.model.effect import Effect
from holdfast.model.errors import QueueFull
from holdfast.model.operations import Move
from holdfast.model.retry import RetryAt
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.redaction import make_logger, redacted

logger = make_logger("holdfast")
_LONGEST = 500

WHAT_TO_CHANGE = (
    "Catch only Exception: write `except Exception:` in place of `except:` and `except BaseException:`, or raise the "
    "caught exception again"
)


def moved(task: Task, move: Move) -> None:
    """A task changed its state."""
    where = move.error.get("where") if isinstance(move.error, dict) else None
    _move(task.id, task.name, task.state, move.to, f"{move.reason} at {where}" if where else move.reason)


def moved_by_hand(task_id: str, target: TaskState, reason: str) -> None:
    """A caller, or the clock, changed the state of a task that no worker held."""
    _move(task_id, "", None, target, reason)


def claimed(task: Task, worker_id: str, *, taken_over: bool = False) -> None:
    """A worker starts a task; ``taken_over``: its last worker died, and no other worker had it since."""
    died = "1 worker died" if task.deaths == 1 else f"{task.deaths} workers died"
    how = f"taken over, {died} with it," if taken_over else "claimed"
    if task.state is TaskState.REVIEW:
        _move(task.id, task.name, TaskState.REVIEW, TaskState.REVIEW, f"{how} by {worker_id}")
    else:
        _move(task.id, task.name, TaskState.PENDING, TaskState.RUNNING, f"{how} by {worker_id}")


def full(label: str, holders: Sequence[tuple[Task, Sequence[str]]], *, seconds: float, ready: int) -> None:
    """A worker has had no free slot for a long time, although tasks are ready."""
    by_name: dict[str, list[str]] = {}
    for task, steps in holders:
        by_name.setdefault(task.name, []).append(f"{task.id} in {steps[0]!r}" if steps else f"{task.id} in no step")
    who = "; ".join(f"{name}: {len(tasks)}, such as {tasks[0]}" for name, tasks in sorted(by_name.items()))
    logger.warning(
        "worker %s has had no free slot for %.0f s while %d of its tasks are ready; its %d slots are held by %s",
        *(label, seconds, ready, len(holders), _in_one_line(who)),
    )


def queue_is_full(task: Task, full: QueueFull, *, again_at: datetime | None) -> None:
    """A child cannot be submitted now: its parent waits."""
    logger.warning(
        "task %s: waits to submit a child, because queue %r is full (%d pending); it is tried again at %s",
        *(task.id, full.queue, full.limit, again_at),
        extra={"task_id": task.id},
    )


def limits_not_closed(task: Task, key: str, error: Exception) -> None:
    """A provider asked for a pause, and the other tasks do not know it."""
    logger.warning(
        "task %s: the provider of step %s asked for a pause, but its limits cannot be closed for others: %s",
        *(task.id, key, _in_one_line(str(error))),
        extra={"task_id": task.id},
    )


def _move(task_id: str, name: str, source: TaskState | None, target: TaskState, reason: str) -> None:
    level = logging.WARNING if target is TaskState.FAILED else logging.INFO
    if not logger.isEnabledFor(level):
        return
    logger.log(
        level,
        "task %s: %s%s (%s)",
        f"{name} {task_id}" if name else task_id,
        f"{source} -> " if source else "",
        target,
        _in_one_line(reason),
        extra={
            "task_id": task_id,
            "from_state": None if source is None else str(source),
            "to_state": str(target),
            "reason": reason,
        },
    )


def _in_one_line(text: str) -> str:
    """Return the text as one line, cut to a length that fits into a log.

    It is redacted before it is cut: half of a credential would not be recognised.
    """
    line = " ".join(redacted(text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."


def step_retried(task: Task, key: str, attempt: int, error: str, decision: RetryAt) -> None:
    """A step failed and will be tried again."""
    logger.info(
        "task %s %s: step %s failed (try %d: %s), again in %.3g s",
        task.name,
        task.id,
        key,
        attempt,
        _in_one_line(error),
        decision.delay,
        extra={"task_id": task.id, "step": key},
    )


def other_arguments(task: Task, key: str) -> None:
    """A step replays a result that was recorded for other arguments: the code may have changed since."""
    logger.warning(
        "task %s %s: step %s was recorded with other arguments; its recorded result is used. If the code has changed, "
        "give the new step another name",
        task.name,
        task.id,
        key,
        extra={"task_id": task.id, "step": key},
    )


def ignored_timeout(task: Task, what: str, where: str) -> None:
    """Code that reached its timeout caught the cancellation and went on; it was set aside."""
    logger.warning(
        "task %s %s: %s caught its cancellation and went on%s, although its timeout had passed; it was set aside. %s",
        *(task.name, task.id, what, f" at {where}" if where else "", WHAT_TO_CHANGE),
        extra={"task_id": task.id},
    )


def ignored_stop(task: Task, where: str) -> None:
    """The code of a task caught the signal that stops it and went on; it was set aside."""
    logger.warning(
        "task %s %s: its code was stopped, but caught the signal and went on%s; it was set aside. %s",
        *(task.name, task.id, f" at {where}" if where else "", WHAT_TO_CHANGE),
        extra={"task_id": task.id},
    )


def unreadable(task_id: str, error: Exception) -> None:
    """A stored row of a task cannot be read, and the task cannot run."""
    logger.error(
        "task %s: what is stored of it cannot be read; repair it, or put it back from a backup, then resume the task",
        task_id,
        exc_info=error,
        extra={"task_id": task_id},
    )


def set_aside(task_id: str, why: str) -> None:
    """A task cannot be read or written while others can. It stays with its worker."""
    logger.error(
        "task %s is set aside by this worker: %s. Repair it, then restart the worker",
        task_id,
        why,
        extra={"task_id": task_id},
    )


def slow_to_stop(task: Task, where: str) -> None:
    """The code of a task had not ended long after it was stopped; it was set aside."""
    logger.warning(
        "task %s %s: its code was stopped, but has not ended yet%s; it was set aside. Keep the clean-up in finally "
        "blocks short, and let code that catches everything raise this signal again",
        *(task.name, task.id, f" at {where}" if where else ""),
        extra={"task_id": task.id},
    )


def ignored_end(task: Task, where: str) -> None:
    """A branch of a task's code went on calling ctx after that part of the task had ended."""
    logger.warning(
        "task %s %s: a branch of its code went on calling ctx after its end%s; it was set aside. Await everything that "
        "the code starts before it returns, and end its loops when ctx raises",
        *(task.name, task.id, f" at {where}" if where else ""),
        extra={"task_id": task.id},
    )


def fenced(task: Task, why: str, *, elsewhere: bool) -> None:
    """An attempt lost its lease, or gives the task up. Only INFO, because no work is lost."""
    words = "stopped here, another worker has it" if elsewhere else "stopped here, another worker can continue it"
    logger.info("task %s %s: %s (%s)", task.name, task.id, words, why, extra={"task_id": task.id})


def not_suspended(task: Task, error: BaseException) -> None:
    """A task could not be suspended and keeps its slot."""
    logger.info("task %s %s: not suspended: %r", task.name, task.id, error, extra={"task_id": task.id})


def needs_human(task: Task, effect: Effect) -> None:
    """It is not known whether a call happened: a person has to decide."""
    logger.warning(
        "task %s %s: did step %s happen? A person has to decide (effect %s): %s",
        task.name,
        task.id,
        effect.step_key,
        effect.effect_id,
        _in_one_line(effect.note or ""),
        extra={"task_id": task.id, "step": effect.step_key},
    )


def reconcile_failed(task: Task, key: str, why: str) -> None:
    """The tool could not find out whether its call happened."""
    logger.warning("task %s %s: step %s: %s", task.name, task.id, key, why, extra={"task_id": task.id, "step": key})


def if_it_failed(what: str, *arguments: object) -> Callable[[asyncio.Task[Any]], None]:
    """Return a done callback that logs the failure of a background task. Without it the failure would go unnoticed."""

    def log_failure(over: asyncio.Task[Any]) -> None:
        if not over.cancelled() and (error := over.exception()) is not None:
            logger.error(what, *arguments, exc_info=error)

    return log_failure


def reported_late(task: Task, key: str, outcome: str) -> None:
    """A call ended after its attempt was over."""
    logger.info(
        "task %s %s: the call of step %s %s after its attempt was over; kept as evidence",
        *(task.name, task.id, key, outcome),
        extra={"task_id": task.id, "step": key},
    )


def cannot_report(task: Task, key: str, why: object) -> None:
    """A call ended after its attempt was over, and its outcome could not be recorded."""
    logger.warning(
        "task %s %s: cannot record the outcome of step %s: %s",
        *(task.name, task.id, key, why),
        extra={"task_id": task.id, "step": key},
    )


def decided(approval: Approval, state: ApprovalState, by: str) -> None:
    """A person decided an approval or answered a question."""
    logger.info(
        "task %s: %s by %s: %s",
        *(approval.task_id, state.value, by, _in_one_line(approval.question)),
        extra={"task_id": approval.task_id},
    )


def resolved(effect: Effect, decision: Decision, by: str) -> None:
    """A person resolved a doubt."""
    logger.info(
        "task %s: the doubt about step %s was resolved as %s by %s",
        *(effect.task_id, effect.step_key, decision.value, by),
        extra={"task_id": effect.task_id, "step": effect.step_key},
    )
