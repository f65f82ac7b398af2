"""When a task rested on its worker while it waited for people, or for children: the clock of its budget stood then.

A task that leaves its worker while it waits says so by its state. One that stays, such as a task that is run by name,
stays ``running``. So its rests are a line of the journal.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.journal import RESERVED, RESTED
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.model.codec import decode, encode
from holdfast.model.step import Step, StepState
from holdfast.model.walltime import Rest
from holdfast.store.base import StateStore

_KEY = f"{RESERVED}{RESTED}"


def begin_rest(attempt: HeldTask, seconds: float) -> Step:
    """Return the line that says that the task has rested for so long, and goes on resting."""
    now, before = attempt.services.time.now(), attempt.journal.get(_KEY)
    rests = [] if before is None else _rests_in(before)
    return _line(attempt, before, [*rests, (now - timedelta(seconds=seconds), None)])


def end_rest(attempt: HeldTask) -> list[Step]:
    """Return the line that says that it rests no more, if one says that it does."""
    now, before = attempt.services.time.now(), attempt.journal.get(_KEY)
    rests = [] if before is None else _rests_in(before)
    if not rests or rests[-1][1] is not None:
        return []
    return [_line(attempt, before, [*rests[:-1], (rests[-1][0], now)])]


def _line(attempt: HeldTask, before: Step | None, rests: list[Rest]) -> Step:
    return journal_line(attempt, _KEY, RESTED, before, state=StepState.COMPLETED, output=encode(rests))


async def read_rests(store: StateStore, task_id: str) -> list[Rest]:
    """Return the rests of a task, in all of its rounds."""
    task = await store.get(task_id)
    rests: list[Rest] = []
    for number in range(1, 1 + (0 if task is None else task.round)):
        line = await store.step(task_id, _KEY, of_round=number)
        rests += [] if line is None else _rests_in(line)
    return rests


def _rests_in(line: Step) -> list[Rest]:
    rests: list[Rest] = [(start, end) for start, end in decode(line.output or b"")]
    return rests
