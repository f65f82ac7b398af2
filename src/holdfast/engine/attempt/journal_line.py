"""A line of the journal, as an attempt writes it: at the next position, or at the position that its key already has."""

from __future__ import annotations

from datetime import datetime

from holdfast.engine.attempt.held_task import HeldTask
from holdfast.model.step import OVER, Step, StepState


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
    """Return a line of the task's round, under its fence. ``before`` is the line that this key has so far.

    It begins now, unless ``started_at`` or ``before`` has another time. In a final state, it ends now.
    """
    now = held.services.time.now()
    return Step(
        key=key,
        kind=kind,
        position=held.journal.next_position() if before is None else before.position,
        state=state,
        round=held.task.round,
        attempts=attempts,
        fence=held.task.fence,
        digest=digest,
        output=output,
        error=error,
        started_at=started_at or (before.started_at if before is not None else None) or now,
        finished_at=now if state in OVER else None,
        retry_at=retry_at,
    )
