"""Lines in a task's journal by agents outside. Their keys never meet those of the task's own code.

That matters where a task has a definition as well: nobody outside can write what its own code would take for a recorded
result, or for somebody's leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from holdfast.engine.attempt.journal import RESERVED, before_round
from holdfast.engine.attempt.journal_line import line_at
from holdfast.model.checks import check_name
from holdfast.model.codec import decode, encode
from holdfast.model.operations import WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue, Task
from holdfast.store.base import StateStore

OUTSIDE = "outside"
"""The kind of such a line, and the beginning of its key."""

NOTE = f"{OUTSIDE}-note:"
"""The beginning of the keys of what one agent leaves for the next. No step an agent names can have such a key."""

ASKED = f"{OUTSIDE}-question:"
"""The same, of what people are asked."""


def own_key(key: str) -> str:
    """Return the key under which a step of theirs stands in the journal."""
    return f"{OUTSIDE}:{key}"


def their_key(key: str) -> str:
    """Return what an agent calls a step. It may have read the key in the journal, and say that."""
    return key.removeprefix(f"{OUTSIDE}:") or key


async def write_line(
    store: StateStore,
    task: Task,
    key: str,
    *,
    at: datetime,
    output: JsonValue = None,
    state: StepState = StepState.COMPLETED,
    mark: str = "",
) -> WriteStep:
    """Return what writes a line at its place: that of the one under this very key, or the next one.

    ``mark`` is by whom it was written, for whoever has to find out whether it was them.
    """
    check_name("step key", key)  # an agent's own: as short as every name that somebody gives
    before = await store.step(task.id, key, of_round=task.round)
    place = await _next_position(store, task) if before is None else before
    body = encode(output) if state is StepState.COMPLETED else None
    return WriteStep(line_at(task, key, OUTSIDE, place, at=at, state=state, digest=mark, output=body))


async def _next_position(store: StateStore, task: Task) -> int:
    last = (await store.last_steps([task.id])).get(task.id)
    return max(before_round(task.round), 0 if last is None else last.position) + 1


async def write_note(store: StateStore, task: Task, note: str, *, by: str, at: datetime) -> WriteStep:
    """Return what writes down what the holder of a lease leaves for the next one."""
    return await write_line(store, task, f"{NOTE}{task.fence}", at=at, output={"note": note, "by": by})


def notes_of(steps: Iterable[Step]) -> list[dict[str, JsonValue]]:
    """Return what agents left for those after them, oldest first."""
    return [decode(step.output) for step in steps if step.key.startswith(NOTE) and step.output is not None]


def shown_steps(steps: Iterable[Step]) -> list[Step]:
    """Return the lines that are steps to an agent outside: no notes, no questions, nothing of the engine's own."""
    return [step for step in steps if not step.key.startswith((NOTE, ASKED, RESERVED))]


async def recorded(store: StateStore, task: Task, key: str) -> Step | None:
    """Return what stands under a key of theirs in this round, if it is complete."""
    step = await store.step(task.id, own_key(key), of_round=task.round)
    return step if step is not None and step.state is StepState.COMPLETED else None
