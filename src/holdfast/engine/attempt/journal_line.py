"""A line of the journal, as its writer writes it: at the next position, or at the position that its key already has."""

from __future__ import annotations

from datetime import datetime

from holdfast.engine.attempt.held_task import HeldTask
from holdfast.model.step import OVER, Step, StepState
from holdfast.model.task import Task


def journal_line(
    held: HeldTask,
    key: str,
    kind: str,
    before: Step | None = None,
    *,
    state: StepState,
    attempts: int = 1,
    digest: str = "",
    output: bytes | None = None,
    error: bytes | None = None,
    started_at: datetime | None = None,
    retry_at: datetime | None = None,
) -> Step:
    """Return a line of an attempt, as of now. ``before`` is the line that this key has so far."""
    return line_at(
        held.task,
        key,
        kind,
        before or held.journal.next_position(),
        at=held.services.time.now(),
        state=state,
        attempts=attempts,
        digest=digest,
        output=output,
        error=error,
        started_at=started_at,
        retry_at=retry_at,
    )


def line_at(
    task: Task,
    key: str,
    kind: str,
    place: Step | int,
    *,
    at: datetime,
    state: StepState,
    attempts: int = 1,
    digest: str = "",
    output: bytes | None = None,
    error: bytes | None = None,
    started_at: datetime | None = None,
    retry_at: datetime | None = None,
) -> Step:
    """Return a line of the task's round, under its fence, for a worker or for an agent outside.

    ``place`` is the line that this key has so far, or the position of a new line. It begins ``at`` that moment, unless
    ``started_at`` or the line before has another time. In a final state, it ends at that moment.
    """
    position, began = (place, None) if isinstance(place, int) else (place.position, place.started_at)
    return Step(
        key=key,
        kind=kind,
        position=position,
        state=state,
        round=task.round,
        attempts=attempts,
        fence=task.fence,
        digest=digest,
        output=output,
        error=error,
        started_at=started_at or began or at,
        finished_at=at if state in OVER else None,
        retry_at=retry_at,
    )
