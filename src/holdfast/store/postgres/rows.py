"""Between rows and records. Times arrive as datetimes in UTC already."""

from __future__ import annotations

from typing import Any

from holdfast.model.step import Step
from holdfast.model.worker import Claimed
from holdfast.store.records import TASK_RECORD_COLUMNS, Records, Row

RECORDS = Records(lambda moment: moment)


def claimed_record(row: Row) -> Claimed:
    """Make a Claimed of a row of ``claim()`` or ``acquire()``."""
    fresh, alone = row[TASK_RECORD_COLUMNS : TASK_RECORD_COLUMNS + 2]
    return Claimed(task=RECORDS.task(row), fresh=fresh, alone=alone)


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
