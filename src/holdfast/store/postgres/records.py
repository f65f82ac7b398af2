"""Between rows and records. Times arrive as datetimes in UTC already."""

from __future__ import annotations

from typing import Any

from holdfast.model.step import Step
from holdfast.store.records import Records

RECORDS = Records(lambda moment: moment)


def step_values(step: Step) -> tuple[Any, ...]:
    """Return a step as a row of ``steps``, behind the task's id."""
    return (
        step.round,
        step.key,
        step.kind,
        step.position,
        step.state.value,
        step.attempts,
        step.fence,
        step.digest,
        step.output,
        step.error,
        step.effect_id,
        step.started_at,
        step.finished_at,
        step.retry_at,
        step.undone_at,
    )
