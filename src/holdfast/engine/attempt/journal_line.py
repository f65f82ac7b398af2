"""A line of the journal, as its writer writes it: at the next place, or at the place that its key has already."""

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
    """Return a line of an attempt, as it stands now. ``before`` is what stands under that key so far."""
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
    """Return a line of the task's round, under its fence: a worker's, or that of an agent outside.

    ``place`` is what stands under that key so far, or the position of a new line. It begins ``at`` that moment, unless
    ``started_at`` or the line before says otherwise; one that is over ends then.
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
