"""Rests: times in which a task waited on its worker for people or children, and its wall time did not count.

The state of a task that leaves its worker shows that it waits. A task that stays on its worker, such as one that
``hold.run`` runs, stays ``running``. So its rests are recorded in a line of the journal.
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
    """Return the line that records that the task has rested for so many seconds, and still rests."""
    now, before = attempt.services.time.now(), attempt.journal.get(_KEY)
    rests = [] if before is None else _rests_in(before)
    return _line(attempt, before, [*rests, (now - timedelta(seconds=seconds), None)])


def end_rest(attempt: HeldTask) -> list[Step]:
    """Return the line that ends the current rest; empty if there is no current rest."""
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
