"""The moves that end the work on a task, by a worker's attempt or by an agent outside. Pure functions."""

from __future__ import annotations

from dataclasses import replace

from holdfast.model.failure import Failure
from holdfast.model.operations import Move
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState

UNREADABLE = "what is stored of it cannot be read"

DEADLINE_PASSED = "deadline passed"
"""The reason of a task that failed at its deadline."""


def work_done(result: JsonValue, *, is_verified: bool, by: str | None = None) -> Move:
    """Complete the task, or hand its result to its verifier; ``by`` names an agent outside."""
    return Move(
        to=TaskState.REVIEW if is_verified else TaskState.COMPLETED,
        reason="work done" if by is None else f"work done, by {by}",
        result=result,
    )


def too_late(failure: Failure) -> Move:
    """Fail the task because its deadline has passed. No traceback: the place where it was noticed means nothing."""
    return Move(to=TaskState.FAILED, reason=DEADLINE_PASSED, error=replace(failure, traceback="").to_json())


def cancelled(reason: str) -> Move:
    """End a task that was cancelled."""
    return Move(to=TaskState.CANCELLED, reason=reason)


def paused() -> Move:
    """Put a paused task back into its queue."""
    return Move(to=TaskState.PENDING, reason="paused")


def handed_back(reason: str = "handed back") -> Move:
    """Let another worker or agent continue the task."""
    return Move(to=TaskState.PENDING, reason=reason)


def unreadable(error: Exception) -> Move:
    """Fail a task that cannot run because its stored rows cannot be read."""
    failure = replace(Failure.of(error), reason=UNREADABLE, steps=())
    return Move(to=TaskState.FAILED, reason=f"{UNREADABLE}: {failure.message}", error=failure.to_json())
