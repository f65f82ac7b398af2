"""The line of the journal that says for which limits a resting task waits, so that people can see it."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.journal import LIMIT, RESERVED
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.model.codec import decode, encode
from holdfast.model.step import Step, StepState

_KEY = f"{RESERVED}{LIMIT}"


def begin_waiting(held: HeldTask, limits: Collection[str]) -> list[Step]:
    """Return the line for a task whose branches wait for permits of these keys of limits; empty if it is written."""
    before = held.journal.get(_KEY)
    now = held.services.time.now()
    output = encode(sorted(limits))
    if before is not None and before.state is StepState.PENDING and before.output == output:
        return []
    return [journal_line(held, _KEY, LIMIT, before, state=StepState.PENDING, output=output, started_at=now)]


def end_waiting(held: HeldTask) -> list[Step]:
    """Return the line that says that the task waits for no permit any more; empty if the last line says so."""
    before = held.journal.get(_KEY)
    if before is None or before.state is not StepState.PENDING:
        return []
    return [journal_line(held, _KEY, LIMIT, before, state=StepState.COMPLETED, output=before.output)]


def limits_in(line: Step) -> list[str]:
    """Return the keys of limits that such a line names."""
    return [str(key) for key in decode(line.output or b"[]")]
