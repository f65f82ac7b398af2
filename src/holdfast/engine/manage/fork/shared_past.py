"""What a fork shares with its origin: lines of the journal, and patches of the state.

Steps that are over are shared. The fork does the rest again: steps under way, unanswered questions, children that have
not ended, undone steps, and the step whose failure ended the task. Earlier rounds are shared as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.engine.attempt.journal import (
    ATTEMPT,
    CHILD,
    IGNORED_STOP,
    LIMIT,
    RESERVED,
    RESTED,
    RESUMED,
    SPILLED,
    TRANSITION,
    VERIFY,
    ended_by,
)
from holdfast.engine.attempt.scope import enclosing
from holdfast.engine.effects import compensation
from holdfast.engine.manage.fork.ancestry import KIND
from holdfast.engine.manage.past_state import is_before, patches_before
from holdfast.engine.steps.children import is_result_of
from holdfast.model.canonical import parse
from holdfast.model.codec import decode
from holdfast.model.effect import EffectClass
from holdfast.model.errors import Conflict, NotFound
from holdfast.model.failure import Failure
from holdfast.model.queries import Loaded
from holdfast.model.records import PatchRecord
from holdfast.model.step import OVER, Step, StepState
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore

_ABOUT_ITSELF = frozenset({ATTEMPT, IGNORED_STOP, LIMIT, RESTED, RESUMED, SPILLED, "undo", KIND})
"""Kinds of lines that are about the origin alone: its failed attempts, its undoing, its own ancestry."""
_OWN_VERDICT = (VERIFY, f"{RESERVED}{VERIFY}")
"""Verdicts of verifiers: they are not shared, because a verifier has to see the fork's own result."""
_FOR_ONE_EFFECT = f"{RESERVED}approval:"
"""Approvals of a single effect of the origin: they are not valid for an effect of the fork."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPast:
    """The past that origin and fork share."""

    lines: tuple[Step, ...]
    """Lines of the origin's current round."""
    before: tuple[Step, ...]
    """Lines of earlier rounds."""
    again: frozenset[str]
    """Keys of steps up to the fork point that the fork does itself."""
    patches: tuple[PatchRecord, ...]


async def shared_by(store: StateStore, loaded: Loaded, at: str | int | None) -> SharedPast:
    """Return what is shared up to and including the step ``at``; with None, everything that is over."""
    task = loaded.task
    journal = [step for step in loaded.steps if step.round == task.round and step.kind != KIND]
    point = None if at is None else _point(task, journal, at)
    around = set() if point is None else _around(loaded, point, journal)
    lines = [step for step in journal if point is None or is_before(step, point, around, journal)]
    failures = _ended_by(loaded)
    not_shared = (
        around
        | failures
        | _around_undone(lines, journal)
        | _failed_children(lines, failures)
        | await _open_children(store, lines)
    )
    shared = [step for step in lines if _is_shared(step) and step.key not in not_shared]
    _refuse_undone_machine(task, lines, shared)
    again = ({step.key for step in lines} | around) - {step.key for step in shared}
    records = [record for record in await store.patches(task.id) if record.version <= task.version]
    if point is not None:
        records = patches_before(journal, records, point)
    return SharedPast(
        lines=tuple(shared),
        before=await _earlier_rounds(store, task),
        again=frozenset(again | _keys_of_machines(shared)),
        patches=tuple(one for one in records if one.round != task.round or one.step_key not in again),
    )


def _point(task: Task, journal: Sequence[Step], at: str | int) -> Step:
    point = next((step for step in journal if at == (step.key if isinstance(at, str) else step.position)), None)
    if point is None:
        raise NotFound(
            "step", str(at), where=f"in the current round of task {task.id}; `holdfast steps {task.id}` lists them"
        )
    if point.state not in OVER:
        raise Conflict(
            f"step {point.key!r} of task {task.id} is {point.state}, so it has no result to share yet; fork at a step "
            "that is over, or without at= to share all steps that are over"
        )
    return point


def _around(loaded: Loaded, point: Step, journal: Sequence[Step]) -> set[str]:
    """Return the keys of the steps around the fork point: the fork does them itself, from that point on."""
    around = enclosing(point.key, journal)
    known = {effect.effect_id: effect.effect_class for effect in loaded.effects}
    # If this task is itself a fork, the effects of its shared steps are not stored here. They may be 'once' steps.
    refused = next(
        (step for step in around if step.effect_id and known.get(step.effect_id, EffectClass.ONCE) is EffectClass.ONCE),
        None,
    )
    if refused is not None:
        raise Conflict(
            f"step {point.key!r} of task {loaded.task.id} is inside the 'once' step {refused.key!r}, which a fork "
            "cannot do in part; fork at that step, or before it"
        )
    return {step.key for step in around}


def _is_shared(step: Step) -> bool:
    """Return whether a line replays in a fork: it is over, it was not undone, and it is not about the origin alone."""
    if step.state not in OVER or step.undone_at is not None or step.kind in _ABOUT_ITSELF:
        return False
    return not step.key.startswith((*_OWN_VERDICT, _FOR_ONE_EFFECT))


def _ended_by(loaded: Loaded) -> set[str]:
    """Return the keys of the steps whose failure ended the task, or is about to end it."""
    error = loaded.task.error if loaded.task.state is TaskState.FAILED else None
    steps = [step for step in loaded.steps if step.round == loaded.task.round]
    for step in steps:
        if step.key == compensation.MARKER and step.state is StepState.RUNNING:
            error = parse(step.output or b"{}").get("error")
    named = () if error is None else Failure.from_json(error).steps
    return {step.key for step in ended_by(named, {step.key: step for step in steps}.get)}


def _around_undone(lines: Sequence[Step], journal: Sequence[Step]) -> set[str]:
    """Return the keys of steps in which an inner step was undone: their results are not valid any more."""
    undone = [step for step in lines if step.undone_at is not None]
    return {outer.key for step in undone for outer in enclosing(step.key, journal)}


def _failed_children(lines: Sequence[Step], ended: set[str]) -> set[str]:
    """Return the keys of children whose failure ended the task: the fork submits its own."""
    children = [step for step in lines if step.kind == CHILD and step.state in OVER]
    return {step.key for step in children if any(is_result_of(step, key) for key in ended)}


async def _open_children(store: StateStore, lines: Sequence[Step]) -> set[str]:
    """Return the keys of submitted children that have not ended: the fork submits its own."""
    results = [step.key for step in lines if step.kind == "result" and step.state in OVER]
    still_open = set()
    for step in lines:
        if step.kind == CHILD and step.state in OVER and not any(is_result_of(step, key) for key in results):
            child = await store.get(str(decode(step.output or b"", name=f"child {step.key!r}")))
            if child is None or not child.state.is_terminal:
                still_open.add(step.key)
    return still_open


def _refuse_undone_machine(task: Task, lines: Sequence[Step], shared: Sequence[Step]) -> None:
    """Refuse to share moves of a machine after a state whose step was undone: the fork would never do it again."""
    undone = next((step for step in lines if step.undone_at is not None), None)
    if undone is not None and any(step.kind == TRANSITION and step.position > undone.position for step in shared):
        raise Conflict(
            f"step {undone.key!r} of task {task.id} was undone, and its machine has moved on since; a fork could not "
            "do it again. Fork at a step before it"
        )


def _keys_of_machines(shared: Sequence[Step]) -> set[str]:
    """Return the keys that machines use without a step: their own, and that of the next move."""
    moves = [step.key.rpartition(":") for step in shared if step.kind == TRANSITION]
    keys = {name for name, _, _ in moves} | {f"{name}:{int(number) + 1}" for name, _, number in moves}
    return keys - {step.key for step in shared}


async def _earlier_rounds(store: StateStore, task: Task) -> tuple[Step, ...]:
    if task.round == 1:
        return ()
    return tuple(step for step in await store.steps(task.id) if step.round < task.round and _is_shared(step))
