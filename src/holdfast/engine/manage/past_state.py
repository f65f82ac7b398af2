"""What came before a step: the patches that make up an agent's state right after it. No I/O."""

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
"""What the first patch of a task is applied to: that one says everything there is to say at the beginning."""


def read_patch(record: PatchRecord | ApplyPatch) -> StatePatch:
    """Return the patch that a record, or the operation that makes one, holds."""
    return StatePatch.from_json(parse(record.body))


def fold(records: Iterable[PatchRecord], onto: AgentState = EMPTY) -> AgentState:
    """Return the state that these patches, in their order, make of another one."""
    state = onto
    for record in records:
        state = absorb(state, read_patch(record))
    return state


def is_before(step: Step, point: Step, around: Collection[str], journal: Sequence[Step]) -> bool:
    """Say whether a line belongs to the past of the point: it stands before it, or inside a step that does.

    ``around`` has the keys of the steps that the point is inside of; the point itself is none of them.
    """
    if step.position <= point.position:
        return True
    outer = [one for one in enclosing(step.key, journal) if one.key not in around]
    return any(one.position <= point.position and one.state in OVER for one in outer)


def patches_before(steps: Iterable[Step], records: Sequence[PatchRecord], at: Step) -> list[PatchRecord]:
    """Return the patches that make up the state right after the step ``at``, in order of version.

    A patch belongs to the step that carried it. It counts if that step stands in the journal at ``at`` or before it,
    whichever of the two was over first: branches that run at the same time have no other order. One that was made
    inside another step counts with that step.

    A patch from outside was made for the state of then. It counts if one that counts came after it, unless one that
    does not count came before it: then it was made for a later state. Where ``at`` itself carried a patch, that settles
    it. Where it carried none, an outside patch also counts if it was there when the step was over, by the store's
    clock. The first patch of all always counts.
    """
    journal = [step for step in steps if step.round == at.round]
    places = {step.key: step.position for step in journal}
    carrying = {record.step_key for record in records if record.round == at.round}
    inside = [step for step in journal if step.key in carrying and enclosing_path(step.key)]
    around = [step.key for step in enclosing(at.key, journal)] if inside else []
    places |= {step.key: at.position for step in inside if is_before(step, at, around, journal)}

    def place(record: PatchRecord) -> float | None:
        """Return where it stands in the journal, as far as that is known; None for one from outside."""
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
