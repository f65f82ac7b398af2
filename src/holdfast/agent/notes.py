"""Lines of the journal that are complete as soon as they are written, such as a message that was read."""

from __future__ import annotations

from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.model.codec import encode
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue


def noted(attempt: Attempt, key: str, kind: str, output: JsonValue) -> Step:
    """Return such a line, at the next position of the journal."""
    return journal_line(attempt, key, kind, state=StepState.COMPLETED, output=encode(output))
