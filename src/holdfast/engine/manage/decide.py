"""Deciding from outside: approvals, open questions, and effects in doubt. The second decider gets a Conflict.

A decision is one Commit: a compare-and-set on the record, together with what follows for the task. It needs no worker,
and it wakes the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.engine.attempt.journal import RESERVED
from holdfast.engine.effects.doubt import DOUBT, MOST_OPEN, arguments_for_people, effect_asked_about
from holdfast.engine.manage.budget import BUDGET, check_answer
from holdfast.engine.runtime import log
from holdfast.engine.steps.approval import APPROVAL, QUESTION
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.canonical import canonical, parse
from holdfast.model.checks import check_name, check_text
from holdfast.model.codec import UNCHECKED
from holdfast.model.commit import Commit, Expect
from holdfast.model.doubt import Decision, Doubt
from holdfast.model.effect import UNKNOWN_OUTCOME, Effect, EffectState
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.operations import Decide, Move, Operation, WriteEffect
from holdfast.model.payload import to_json
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore

_S = EffectState
_AFTER_THE_END = (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)
"""Possible decisions after the task has ended. Nothing can be undone then, because no worker runs the task."""


_EARLY = (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)
"""Possible decisions before the call has settled, if the worker that made it does not hold the task any more."""

_ACTS_AT_ONCE = frozenset({Decision.HAPPENED, Decision.ABANDON, Decision.COMPENSATE})
"""Decisions that wake the task before the call has settled: none of them makes the call again. An undo waits by
itself."""

_TRIES = 100
"""How often a decision is sent if a worker changes the task meanwhile."""

_AFTER_THE_FACT = (Decision.HAPPENED, Decision.ABANDON)
"""Possible decisions about a doubt that late evidence reopened after the task had gone on."""


# Approvals and questions


async def open_approvals(
    store: StateStore, *, task_id: str | None, states: Sequence[ApprovalState], limit: int
) -> list[Approval]:
    """Return the approvals and questions in these states."""
    wanted = frozenset(states)
    stored_as = wanted | {ApprovalState.OPEN} if ApprovalState.EXPIRED in wanted else wanted
    asked_for = limit
    while True:  # the store also returns and counts the questions about effects, which do not belong here
        listed = await store.approvals(task_id=task_id, states=stored_as, limit=asked_for)
        standing = await as_they_stand(store, listed)
        found = [approval for approval in standing if approval.kind != DOUBT and approval.state in wanted]
        if len(found) >= limit or len(listed) < asked_for:
            return found[:limit]
        asked_for *= 2


async def as_they_stand(store: StateStore, approvals: Sequence[Approval]) -> list[Approval]:
    """Return the approvals, with those marked as expired whose time has passed. A worker records that later."""
    if not any(approval.state is ApprovalState.OPEN and approval.expires_at for approval in approvals):
        return list(approvals)
    now = await store.now()
    return [
        replace(approval, state=ApprovalState.EXPIRED)
        if approval.state is ApprovalState.OPEN and approval.expires_at is not None and approval.expires_at <= now
        else approval
        for approval in approvals
    ]


async def decide(
    store: StateStore,
    approval_id: str,
    state: ApprovalState,
    *,
    by: str,
    note: str | None,
    answer: JsonValue = None,
) -> Approval:
    """Decide an open approval; return it as it is then. Raises Conflict if it is decided or has expired already."""
    _check_decider(by, note)
    approval = await store.approval(approval_id)
    if approval is None:
        raise NotFound("approval", approval_id)
    _check_kind(approval, state)
    [approval] = await as_they_stand(store, [approval])
    _check_undecided(approval)
    if approval.kind == BUDGET and state is ApprovalState.ANSWERED:
        check_answer(approval, answer)
    await _commit(
        store,
        approval.task_id,
        by,
        Decide(approval_id=approval_id, state=state, by=by, note=note, answer=answer),
    )
    log.decided(approval, state, by)
    return await store.approval(approval_id) or approval


def _check_kind(approval: Approval, state: ApprovalState) -> None:
    if approval.kind == DOUBT:
        asked = effect_asked_about(approval)
        raise InvalidValue(f"approval {approval.id} asks about an effect in doubt: use hold.resolve({asked!r}, ...)")
    if approval.kind == QUESTION and state is ApprovalState.APPROVED:
        raise InvalidValue(f"approval {approval.id} is an open question; answer it with hold.answer(...)")
    if approval.kind == APPROVAL and state is ApprovalState.ANSWERED:
        raise InvalidValue(f"approval {approval.id} asks for a yes or no; use hold.approve(...) or hold.reject(...)")


_ALREADY = {
    ApprovalState.EXPIRED: "has expired without a decision",
    ApprovalState.VOID: "is void: its arguments changed after it was asked; look for the new one in hold.approvals()",
    ApprovalState.CLOSED: "is closed: its task ended before a decision",
}


def _check_undecided(approval: Approval) -> None:
    """Raise Conflict if the approval is not open. Of two decisions at the same moment, the store refuses one."""
    if approval.state is not ApprovalState.OPEN:
        already = _ALREADY.get(approval.state, f"was {approval.state.value} already, by {approval.decided_by}")
        raise Conflict(f"approval {approval.id} ({approval.question!r}) {already}; nothing was changed")


def _check_decider(by: str, note: str | None) -> None:
    check_name("by", by)
    if note is not None and not isinstance(note, str):
        raise InvalidValue(f"note is {note!r}; give a text, or omit it")
    check_text("note", note)


async def _commit(
    store: StateStore, task_id: str, by: str, *operations: Operation, revision: int | None = None
) -> None:
    sent = Commit(task_id=task_id, guard=Expect(revision=revision), operations=operations, actor=by)
    [verdict] = await store.commit([sent])
    verdict.require()


# Doubts


async def doubts(store: StateStore, *, task_id: str | None, limit: int) -> list[Doubt]:
    """Return the effects whose outcome is not known, and the possible decisions about each."""
    tasks: dict[str, Task | None] = {}
    asked_for = limit
    while True:  # the store also returns and counts calls that are under way now, which do not belong here
        found = []
        listed = await store.effects(task_id=task_id, states=UNKNOWN_OUTCOME, limit=asked_for)
        for effect in listed:
            if effect.task_id not in tasks:
                tasks[effect.task_id] = await store.get(effect.task_id)
            if (task := tasks[effect.task_id]) is not None and _is_in_doubt(effect, task):
                found.append((effect, task))
        if len(found) >= limit or len(listed) < asked_for:
            asked = {task_id: await _asked(store, task_id) for task_id in {task.id for _, task in found[:limit]}}
            return [
                await _describe(store, effect, task, asked[task.id].get(effect.effect_id))
                for effect, task in found[:limit]
            ]
        asked_for *= 2


def _is_in_doubt(effect: Effect, task: Task) -> bool:
    """Return whether the effect is in doubt. An armed one is, as soon as its worker does not hold the task any more."""
    return effect.state is not _S.ARMED or _has_ended(effect, task)


def _has_ended(effect: Effect, task: Task) -> bool:
    """Return whether the lease under which the call was made has ended."""
    return task.owner is None or task.fence != effect.fence


async def _describe(store: StateStore, effect: Effect, task: Task, asked: Approval | None) -> Doubt:
    about = parse(asked.arguments_bytes) if asked is not None else {}
    decisions = tuple(map(Decision, about.get("decisions", ())))
    early: tuple[Decision, ...] = ()
    if task.state.is_terminal:
        decisions = _AFTER_THE_END
    elif asked is None and effect.state is _S.NEEDS_HUMAN:
        decisions = _AFTER_THE_FACT
    elif asked is None and _has_ended(effect, task) and not effect.step_key.startswith(RESERVED):
        early = (*_EARLY, Decision.COMPENSATE) if effect.compensable else _EARLY
    return Doubt(
        effect=effect,
        task_name=task.name,
        question=asked.question if asked is not None else f"Did step {effect.step_key!r} of {task.name!r} happen?",
        arguments=arguments_for_people(effect),
        decisions=decisions,
        early=early,
        evidence=tuple(await store.evidence(effect.task_id, effect.effect_id)),
        approval_id=None if asked is None else asked.id,
    )


async def _asked(store: StateStore, task_id: str) -> dict[str, Approval]:
    """Return the open questions about effects of a task, by effect id."""
    listed = await store.approvals(task_id=task_id, states={ApprovalState.OPEN}, limit=MOST_OPEN)
    return {about: one for one in listed if (about := effect_asked_about(one)) is not None}


async def resolve(
    store: StateStore,
    effect_id: str,
    decision: Decision | str,
    *,
    result: Any = None,  # noqa: ANN401
    by: str,
    note: str | None,
) -> Effect:
    """Decide what counts as true about an effect in doubt; return the effect as it is then."""
    _check_decider(by, note)
    try:
        decision = Decision(decision)
    except ValueError:
        raise InvalidValue(f"{decision!r} is not a valid decision; choose one of {', '.join(Decision)}") from None
    if result is not None and decision is not Decision.HAPPENED:
        raise InvalidValue(
            f"a result is only possible with the decision {Decision.HAPPENED.value!r}, not with {decision.value!r}"
        )
    for _ in range(_TRIES - 1):
        with suppress(_MovedMeanwhile):
            return await _resolve_once(store, effect_id, decision, result, by=by, note=note)
    return await _resolve_once(store, effect_id, decision, result, by=by, note=note)


class _MovedMeanwhile(Conflict):
    """The task changed after the doubt was read. It has to be read again."""


async def _resolve_once(
    store: StateStore,
    effect_id: str,
    decision: Decision,
    result: Any,  # noqa: ANN401
    *,
    by: str,
    note: str | None,
) -> Effect:
    found = await store.effects(effect_id=effect_id)
    if not found:
        raise NotFound("effect", effect_id)
    task = await store.get(found[0].task_id)
    if task is None:
        raise NotFound("task", found[0].task_id)
    # Read after the task: any decision made from here on changes the revision that is compared below.
    [effect] = await store.effects(task_id=task.id, effect_id=effect_id)
    doubt = await _describe(store, effect, task, (await _asked(store, task.id)).get(effect_id))
    _check_open(doubt, task, decision)
    remark = f"{decision.value}, by {by}" + (f": {note}" if note else "")
    # The type is not checked: it is known where the step is defined, which may be in another process.
    body = canonical(to_json(result, UNCHECKED, name="result")) if decision is Decision.HAPPENED else None
    operations: list[Operation] = []
    if doubt.approval_id is not None:
        answer: JsonValue = {"decision": decision.value}
        operations.append(
            Decide(approval_id=doubt.approval_id, state=ApprovalState.ANSWERED, by=by, note=note, answer=answer)
        )
    settled = replace(effect, note=remark, result=body)
    operations += [WriteEffect(replace(settled, state=state)) for state in _way(effect.state, decision)]
    if doubt.early and task.state is TaskState.WAITING and decision in _ACTS_AT_ONCE:
        operations.append(Move(to=TaskState.PENDING, reason=f"{effect.step_key} was decided by {by}"))
    # Compare-and-set on the question, if there is one. Otherwise on the whole task: no worker holds it any more.
    revision = None if doubt.approval_id is not None else task.revision
    try:
        await _commit(store, task.id, by, *operations, revision=revision)
    except Conflict as conflict:
        if revision is None:
            raise
        raise _MovedMeanwhile(str(conflict)) from conflict
    log.resolved(effect, decision, by)
    [now] = await store.effects(effect_id=effect_id)
    return now


def _check_open(doubt: Doubt, task: Task, decision: Decision) -> None:
    effect = doubt.effect
    if effect.state not in UNKNOWN_OUTCOME:
        raise Conflict(
            f"effect {effect.effect_id} is not in doubt, or not any more: it is {effect.state.value}"
            + (f" ({effect.note})" if effect.note else "")
        )
    possible = doubt.decisions or doubt.early
    if not possible:
        until = f" until {effect.settle_at.isoformat()}" if effect.settle_at is not None else ""
        raise Conflict(
            f"effect {effect.effect_id} is in doubt, and the worker that made the call still clears it up by itself"
            f"{until}; if that does not succeed, a person is asked to decide"
        )
    if decision not in possible:
        allowed = ", ".join(one.value for one in possible)
        raise Conflict(
            f"effect {effect.effect_id} of task {task.id} ({task.state.value}) cannot be resolved as "
            f"{decision.value!r}; choose one of {allowed}"
        )


def _way(before: EffectState, decision: Decision) -> list[EffectState]:
    """Return the states from a doubt to the decided state: each move between them is in EFFECT_MOVES."""
    way = {_S.ARMED: [_S.IN_DOUBT, _S.NEEDS_HUMAN], _S.IN_DOUBT: [_S.NEEDS_HUMAN]}.get(before, [])
    match decision:
        case Decision.HAPPENED:
            return [*way, _S.DONE]
        case Decision.ABSENT:
            return [*way, _S.INTENDED]
        case Decision.COMPENSATE:
            return [*way, _S.COMPENSATING]
        case Decision.ABANDON:
            return [*way, _S.ABANDONED]
        case Decision.UNDONE:
            return [*way, _S.COMPENSATING, _S.COMPENSATED]
