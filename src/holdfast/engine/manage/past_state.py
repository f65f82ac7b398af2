"""The past of a step: the patches that make up an agent's state right after it. No I/O."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from holdfast.engine.attempt.scope import enclosing, enclosing_path
from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import parse
from holdfast.model.operations import ApplyPatch
from holdfast.model.patch import StatePatch, absorb
from holdfast.model.records import PatchRecord
from holdfast.model.step import OVER, Step

EMPTY = AgentState(goal="")
"""The state before the first patch of a task: the first patch sets everything."""


def read_patch(record: PatchRecord | ApplyPatch) -> StatePatch:
    """Return the patch in a record, or in the operation that makes a record."""
    return StatePatch.from_json(parse(record.body))


def fold(records: Iterable[PatchRecord], onto: AgentState = EMPTY) -> AgentState:
    """Apply these patches in order, and return the state."""
    state = onto
    for record in records:
        state = absorb(state, read_patch(record))
    return state


def is_before(step: Step, point: Step, around: Collection[str], journal: Sequence[Step]) -> bool:
    """Return whether a line belongs to the past of the point: it is before the point, or inside a step that is.

    ``around`` has the keys of the steps around the point, without the point itself.
    """
    if step.position <= point.position:
        return True
    outer = [one for one in enclosing(step.key, journal) if one.key not in around]
    return any(one.position <= point.position and one.state in OVER for one in outer)


def patches_before(steps: Iterable[Step], records: Sequence[PatchRecord], at: Step) -> list[PatchRecord]:
    """Return the patches that make up the state right after the step ``at``, in order of version.

    A patch belongs to the step that carried it. It counts if that step is at the position of ``at`` in the journal or
    before it. It does not matter which of the two steps ended first: parallel branches have no other order. A patch
    from inside another step counts if that step does.

    A patch from outside was made for the state at that time. It counts if a later patch counts, unless an earlier patch
    does not count: then it was made for a later state. If ``at`` itself carried no patch, an outside patch also counts
    if it was there when the step ended, by the store's clock. The first patch of all always counts.
    """
    journal = [step for step in steps if step.round == at.round]
    places = {step.key: step.position for step in journal}
    carrying = {record.step_key for record in records if record.round == at.round}
    inside = [step for step in journal if step.key in carrying and enclosing_path(step.key)]
    around = [step.key for step in enclosing(at.key, journal)] if inside else []
    places |= {step.key: at.position for step in inside if is_before(step, at, around, journal)}

    def place(record: PatchRecord) -> float | None:
        """Return its position in the journal, as far as that is known; None for a patch from outside."""
        if record.round != at.round:
            return -math.inf if record.round < at.round else math.inf
        return None if record.step_key is None else places.get(record.step_key)

    placed = [(record, place(record)) for record in records]
    newest = max((record.version for record, where in placed if where is not None and where <= at.position), default=1)
    first_later = min(
        (record.version for record, where in placed if where is not None and where > at.position), default=math.inf
    )
    has_own = any(record.step_key == at.key and record.round == at.round for record in records)

    def counts(record: PatchRecord, where: float | None) -> bool:
        if where is not None:
            return where <= at.position
        if record.version > first_later:
            return False
        was_there = not has_own and at.finished_at is not None and record.at <= at.finished_at
        return record.version <= newest or was_there

    return [record for record, where in placed if counts(record, where)]
