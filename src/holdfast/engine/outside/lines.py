"""Lines in a task's journal by agents outside. Their keys never equal those of the task's own code.

That matters where a task has a definition as well: an agent outside cannot write a line that the task's own code would
take for a recorded result or for an approval.
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
"""The prefix of the keys of notes from one agent to the next. No step that an agent names can have such a key."""

ASKED = f"{OUTSIDE}-question:"
"""The prefix of the keys of questions to people."""


def own_key(key: str) -> str:
    """Return the journal's key of a step of an agent outside."""
    return f"{OUTSIDE}:{key}"


def their_key(key: str) -> str:
    """Return the agent's own name of a step. The agent may pass the journal's key instead, if it read that."""
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
    """Return the operation that writes a line: in the place of the line with the same key, or in the next place.

    ``mark`` names the writer, so that a writer can find out whether a line is its own.
    """
    check_name("step key", key)  # the agent chose it: the limits of every name hold
    before = await store.step(task.id, key, of_round=task.round)
    place = await _next_position(store, task) if before is None else before
    body = encode(output) if state is StepState.COMPLETED else None
    return WriteStep(line_at(task, key, OUTSIDE, place, at=at, state=state, digest=mark, output=body))


async def _next_position(store: StateStore, task: Task) -> int:
    last = (await store.last_steps([task.id])).get(task.id)
    return max(before_round(task.round), 0 if last is None else last.position) + 1


async def write_note(store: StateStore, task: Task, note: str, *, by: str, at: datetime) -> WriteStep:
    """Return the operation that writes a note from the holder of a lease to the next one."""
    return await write_line(store, task, f"{NOTE}{task.fence}", at=at, output={"note": note, "by": by})


def notes_of(steps: Iterable[Step]) -> list[dict[str, JsonValue]]:
    """Return the notes that agents left for the next ones, oldest first."""
    return [decode(step.output) for step in steps if step.key.startswith(NOTE) and step.output is not None]


def shown_steps(steps: Iterable[Step]) -> list[Step]:
    """Return the lines that are steps to an agent outside: no notes, no questions, nothing of the engine's own."""
    return [step for step in steps if not step.key.startswith((NOTE, ASKED, RESERVED))]


async def recorded(store: StateStore, task: Task, key: str) -> Step | None:
    """Return the completed step of an agent outside under this key in this round, if there is one."""
    step = await store.step(task.id, own_key(key), of_round=task.round)
    return step if step is not None and step.state is StepState.COMPLETED else None
