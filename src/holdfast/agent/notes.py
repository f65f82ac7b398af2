"""Lines of the journal that are complete as soon as they are written: something was read, said or counted."""

from __future__ import annotations

from holdfast.engine.attempt.attempt import Attempt
from holdfast.model.codec import encode
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue


def noted(attempt: Attempt, key: str, kind: str, output: JsonValue) -> Step:
    """Return such a line, at the next place of the journal."""
    now = attempt.services.time.now()
    return Step(
        key=key,
        kind=kind,
        position=attempt.journal.next_position(),
        state=StepState.COMPLETED,
        round=attempt.task.round,
        fence=attempt.task.fence,
        output=encode(output),
        started_at=now,
        finished_at=now,
    )
