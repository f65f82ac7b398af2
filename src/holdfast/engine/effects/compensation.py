"""Sagas: undoing what was done, in reverse, when a task fails, is cancelled, or runs out of time.

First one Commit puts the task back into its queue with a line in its journal that says how it will end. Whoever claims
it replays its code, which does nothing new, to find how each step is undone; clears up what is in doubt; undoes what
was done; and then ends the task. A worker that dies on the way is followed by another, which finds the same line.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from holdfast.engine.attempt.journal import RESERVED, Journal, reopened
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.scope import path_inside
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.effects import doubt
from holdfast.engine.effects.once_step import OnceStep
from holdfast.engine.runtime import log
from holdfast.engine.runtime.store_retry import insist
from holdfast.engine.steps.call import Call, arguments_of, describe, fix_arguments, terms_of
from holdfast.engine.steps.step import perform
from holdfast.engine.steps.transaction import run_undo
from holdfast.engine.steps.waits import pause_until
from holdfast.model.approval import ApprovalState
from holdfast.model.canonical import canonical, digest, parse
from holdfast.model.codec import decode
from holdfast.model.deadline import as_seconds
from holdfast.model.doubt import Decision
from holdfast.model.effect import UNKNOWN_OUTCOME, Effect, EffectState
from holdfast.model.errors import Conflict, InvalidValue, JournalMismatch, StoreError
from holdfast.model.failure import storable
from holdfast.model.operations import Decide, Move, OpenApproval, Operation, RequireUndo, WriteEffect, WriteStep
from holdfast.model.payload import from_json
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState

MARKER = f"{RESERVED}undo"

_S = EffectState
_ALWAYS = UNKNOWN_OUTCOME | {_S.COMPENSATING}
"""What concerns a saga even if its step named no way to undo it, or names one only now."""
_ABOUT_AN_UNDO = (Decision.COMPENSATE, Decision.UNDONE, Decision.ABANDON)


def begun(journal: Journal) -> Step | None:
    """Return the line that says that the task is undoing its steps, if it is."""
    marker = journal.get(MARKER)
    return marker if marker is not None and marker.state is StepState.RUNNING else None


class Undoer(StepOwner, Protocol):
    """An attempt that undoes the steps of its task, and then ends it."""

    task: Task

    async def finish(self, *operations: Operation) -> None:
        """Let go of the task, with these as the last that is written."""


def beginning(attempt: StepOwner, ending: Move) -> tuple[Operation, ...]:
    """Return what puts a task back into its queue to undo its steps and then end as ``ending`` says."""
    how: JsonValue = {
        "to": ending.to.value,
        "reason": ending.reason,
        "error": ending.error,
        "result": ending.result,
        "feedback": ending.feedback,
    }
    before = attempt.journal.get(MARKER)
    marker = journal_line(
        attempt,
        MARKER,
        "undo",
        state=StepState.RUNNING,
        attempts=1 if before is None else before.attempts + 1,
        output=canonical(how),
    )
    back = Move(
        to=TaskState.PENDING,
        reason=f"undoes its steps: {ending.reason}",
        counts_attempt=ending.counts_attempt,
    )
    return WriteStep(marker), RequireUndo(required=True, begun=True), back


async def undo(attempt: Undoer, marker: Step) -> None:
    """Undo what can be undone, in reverse, have people see to the rest, and end the task."""
    await attempt.discovery.look_for({effect.step_key for effect in _to_do(attempt)})
    await attempt.check()  # a replay that was stopped has found nothing out
    attempt.task = replace(attempt.task, deadline=None)  # undoing is not hurried by it: it gets all of its tries
    await _take_back_questions(attempt)
    while True:
        for effect in _to_do(attempt):
            if effect.state in UNKNOWN_OUTCOME and not _is_about_its_undo(attempt, effect):
                await _clear_up(attempt, effect)
        early = [effect for effect in attempt.intents.effects.values() if effect.state is _S.INTENDED]
        if not [effect for effect in early if await _settles(attempt, effect)]:
            break
    while stuck := await _undo_what_can_be(attempt):
        await asyncio.gather(*(_until_undone(attempt, effect) for effect in stuck))
    await _end(attempt, marker)


async def _undo_what_can_be(attempt: StepOwner) -> list[Effect]:
    """Undo effects, the last first; return those that people have to see to. A step waits for what is inside it."""
    stuck: list[Effect] = []
    is_inside = attempt.journal.digests.is_inside
    for effect in _to_do(attempt):
        path = path_inside(effect.step_key)
        if any(is_inside(one.step_key, path) for one in stuck):
            continue
        if not await _undo_or_once_more(attempt, effect):
            stuck.append(effect)
    return stuck


async def _take_back_questions(attempt: StepOwner) -> None:
    """Close what the task's code asked people: nobody will ever go on with the answers."""
    store, worker = attempt.services.store, attempt.lease.worker_id
    for asked in await insist(
        lambda: store.approvals(task_id=attempt.task.id, states={ApprovalState.OPEN}, limit=doubt.MOST_OPEN)
    ):
        if asked.kind != doubt.DOUBT:
            with suppress(Conflict):  # it was decided meanwhile, or has expired
                note = "the task undoes its steps"
                await attempt.outbox.commit(
                    Decide(approval_id=asked.id, state=ApprovalState.VOID, by=worker, note=note)
                )


async def _undo_or_once_more(attempt: StepOwner, effect: Effect) -> bool:
    """Undo one effect; a person may have said so while nobody worked on the task."""
    asked = attempt.journal.get(_decision_key(effect))
    if effect.state is _S.COMPENSATING and asked is not None and asked.state is StepState.PENDING:
        return await _once_more(attempt, effect)
    return await _undo(attempt, effect)


async def undo_now(attempt: StepOwner, effect: Effect) -> Effect:
    """Undo one effect that a person wants undone, while the task goes on; return how it stands then."""
    if not await _undo_or_once_more(attempt, effect):
        await _until_undone(attempt, effect)
    return attempt.intents.effects[effect.effect_id]


def _to_do(attempt: StepOwner) -> list[Effect]:
    """Return the effects that still concern a saga, the last first."""
    effects = [
        effect
        for effect in attempt.intents.effects.values()
        if not effect.step_key.startswith(RESERVED)
        and (effect.state in _ALWAYS or (effect.compensable and effect.state is _S.DONE))
    ]
    return sorted(effects, key=lambda effect: _position(attempt, effect), reverse=True)


def _position(attempt: StepOwner, effect: Effect) -> int:
    step = attempt.journal.by_effect(effect.effect_id)
    return 0 if step is None else step.position


def _undo_key(effect: Effect) -> str:
    return f"{MARKER}:{effect.effect_id}"


def _is_about_its_undo(attempt: StepOwner, effect: Effect) -> bool:
    """Say whether a person is asked about the undo of an effect, not about the effect itself."""
    return effect.state is _S.NEEDS_HUMAN and attempt.journal.get(_undo_key(effect)) is not None


async def _clear_up(attempt: StepOwner, effect: Effect) -> None:
    """Find out what became of an effect before anything is undone."""
    once = _code_of(attempt, effect)
    if once is None:
        standing = effect
        if effect.state is _S.ARMED:
            standing = replace(effect, state=_S.IN_DOUBT)
            await attempt.outbox.commit(WriteEffect(standing))
        if standing.state is _S.IN_DOUBT:
            standing = replace(standing, state=_S.NEEDS_HUMAN, note=f"{effect.note or ''} (its code is gone)".strip())
            await attempt.outbox.commit(WriteEffect(standing))
        decisions = (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)
        line = _line(attempt, f"{MARKER}-doubt:{effect.effect_id}", StepState.PENDING)
        await doubt.ask_person(attempt, standing, line, decisions)
        return
    while once.effect is not None and once.effect.state in UNKNOWN_OUTCOME:
        once.effect = await doubt.find_out(once)
    attempt.intents.effects[effect.effect_id] = once.effect or effect


def _code_of(attempt: StepOwner, effect: Effect) -> OnceStep | None:
    """Return the step of an effect, if the code still has it as it was."""
    call = attempt.intents.calls.get(effect.step_key)
    if call is None or call.terms is None:
        return None
    try:
        once = OnceStep(attempt, call, call.terms)
    except (JournalMismatch, InvalidValue):
        attempt.fatal = None
        return None
    return once if once.effect is not None and once.effect.effect_id == effect.effect_id else None


async def _settles(attempt: StepOwner, effect: Effect) -> bool:
    """Wait until a call has settled about which somebody decided before; False if it has settled already."""
    at = effect.settle_at
    if at is None or attempt.services.time.now() >= at:
        return False
    line = replace(_line(attempt, f"{MARKER}-settle:{effect.effect_id}", StepState.PENDING), retry_at=at)
    await pause_until(attempt, line, at)
    await doubt.read_again(attempt, effect)
    return True


async def _undo(attempt: StepOwner, effect: Effect) -> bool:
    """Undo one effect; False if a person has to see to it."""
    if effect.state is _S.NEEDS_HUMAN:
        return False
    step = attempt.journal.by_effect(effect.effect_id)
    if effect.result is not None or step is None or step.output is None:
        # Its call has not returned here: it may still be under way at its receiver, and outlast its undo.
        await _settles(attempt, effect)
    if effect.state is _S.DONE:
        effect = replace(effect, state=_S.COMPENSATING)
        await attempt.outbox.commit(WriteEffect(effect))
    try:
        call = _undo_call(attempt, effect)
        await (run_undo(attempt, call) if _is_in_transaction(attempt, effect) else perform(attempt, call))
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever keeps it from being undone, a person has to know
        attempt.fatal = None
        await _ask_about_undo(attempt, effect, error)
        return False
    return True


async def _once_more(attempt: StepOwner, effect: Effect) -> bool:
    """Undo again what a person wants undone, whatever became of it before; False if they have to see to it again.

    Their word counts once: it is used up by the Commit that goes by it.
    """
    operations: list[Operation] = [WriteStep(_line(attempt, _decision_key(effect), StepState.COMPLETED))]
    failed = attempt.journal.get(_undo_key(effect))
    if failed is not None and failed.state is StepState.FAILED:
        operations.append(WriteStep(reopened(failed)))
    doubtful = _effect_of_undo(attempt, effect)
    if doubtful is not None and doubtful.state is _S.IN_DOUBT:
        operations.append(WriteEffect(replace(doubtful, state=_S.INTENDED)))
    await attempt.outbox.commit(*operations)
    return await _undo(attempt, effect)


def _effect_of_undo(attempt: StepOwner, effect: Effect) -> Effect | None:
    """Return the effect that the undo itself is, if it is one of its own."""
    key = _undo_key(effect)
    return next((one for one in attempt.intents.effects.values() if one.step_key == key), None)


def _undo_call(attempt: StepOwner, effect: Effect) -> Call:
    call = attempt.intents.calls.get(effect.step_key)
    compensation = call.terms.compensate if call is not None and call.terms is not None else None
    if call is None or compensation is None:
        raise InvalidValue(f"the code no longer says how to undo step {effect.step_key!r}")
    terms = terms_of(
        effect.step_key,
        compensation.function,
        effect=compensation.effect,
        reconcile=compensation.reconcile,
        settle=compensation.settle,
        compensate=None,
        absent_on=compensation.absent_on,
        repeat=False,
        approval=None,
    )
    timeout = compensation.timeout
    undo = Call(
        _undo_key(effect),
        compensation.function,
        (_result(attempt, effect, call), *_arguments(effect, call)),
        compensation.retry,
        None if timeout is None else as_seconds(timeout, what="the timeout of a compensation"),
        Any,
        kind="undo",
        terms=terms,
        also=lambda _: _undone(attempt, effect),
    )
    fix_arguments(undo)  # it may be tried more than once
    return undo


def _is_in_transaction(attempt: StepOwner, effect: Effect) -> bool:
    call = attempt.intents.calls.get(effect.step_key)
    return call is not None and call.terms is not None and call.terms.undone_in_transaction


def _result(attempt: StepOwner, effect: Effect, call: Call) -> Any:  # noqa: ANN401
    """Return what the step returned; None where nobody knows."""
    returns = describe(call.function).returns if call.returns is None else call.returns
    step = attempt.journal.by_effect(effect.effect_id)
    if step is not None and step.output is not None:
        return decode(step.output, returns, name=f"step {effect.step_key!r}")
    return from_json(parse(effect.result or b"null"), returns, name=f"step {effect.step_key!r}")


def _arguments(effect: Effect, call: Call) -> tuple[Any, ...]:
    """Return what the step was called with: what the code passes now, unless that is known to be something else."""
    if not effect.arguments_hash or effect.arguments_hash == digest(arguments_of(call)):
        return call.args
    return tuple(decode(effect.arguments, name=f"arguments of step {effect.step_key!r}"))


def _undone(attempt: StepOwner, effect: Effect) -> tuple[Operation, ...]:
    step = attempt.journal.by_effect(effect.effect_id)
    done = WriteEffect(replace(effect, state=_S.COMPENSATED))
    if step is None or attempt.undoing is None:  # while the task goes on, the step fails: it is not to be done anew
        return (done,)
    return WriteStep(replace(step, undone_at=attempt.services.time.now())), done


async def _ask_about_undo(attempt: StepOwner, effect: Effect, error: Exception) -> None:
    note = storable(f"its compensation failed: {error}", 1000)
    stuck = replace(effect, state=_S.NEEDS_HUMAN, note=note)
    question = doubt.question_about(attempt, stuck, _ABOUT_AN_UNDO)
    question = replace(question, question=f"Step {effect.step_key!r} of {attempt.task.name!r} was not undone: {note}")
    waiting = _line(attempt, _decision_key(effect), StepState.PENDING)
    operations: list[Operation] = [WriteEffect(stuck), OpenApproval(question), WriteStep(waiting)]
    if attempt.journal.get(_undo_key(effect)) is None:  # it could not even be called
        operations.append(WriteStep(_line(attempt, _undo_key(effect), StepState.FAILED)))
    await attempt.outbox.commit(*operations)
    log.needs_human(attempt.task, stuck)


async def _until_undone(attempt: StepOwner, effect: Effect) -> None:
    """Wait for a person to decide about an undo that failed, and do as they say."""
    while True:
        waiting = _line(attempt, _decision_key(effect), StepState.PENDING)
        standing = await doubt.ask_person(attempt, attempt.intents.effects[effect.effect_id], waiting, _ABOUT_AN_UNDO)
        if standing.state is not _S.COMPENSATING or await _once_more(attempt, standing):
            return


def _decision_key(effect: Effect) -> str:
    """Return the key of the line that is pending while a person has not decided, or nobody went by what they said."""
    return f"{_undo_key(effect)}:decision"


def _line(attempt: StepOwner, key: str, state: StepState) -> Step:
    """Return a line of the journal of the undoing itself."""
    now = attempt.services.time.now()
    return journal_line(attempt, key, "undo", attempt.journal.get(key), state=state, started_at=now)


def _tidied(attempt: StepOwner) -> list[Operation]:
    """Return what follows from people's decisions: lines of steps they undid by hand, and undos nobody doubts now."""
    operations: list[Operation] = []
    for effect in attempt.intents.effects.values():
        if effect.state not in {_S.COMPENSATED, _S.ABANDONED}:
            continue
        is_undone = effect.state is _S.COMPENSATED
        step = attempt.journal.by_effect(effect.effect_id)
        if is_undone and step is not None and step.undone_at is None:
            operations.append(WriteStep(replace(step, undone_at=attempt.services.time.now())))
        undo = _effect_of_undo(attempt, effect)
        if undo is not None and undo.state is _S.IN_DOUBT:
            way = (_S.DONE,) if is_undone else (_S.NEEDS_HUMAN, _S.ABANDONED)
            operations += [WriteEffect(replace(undo, state=state, note=effect.note)) for state in way]
    return operations


def _is_undone_since(attempt: StepOwner, effect: Effect, marker: Step) -> bool:
    """Say whether an effect was undone this time, and not before the task was revived."""
    step = attempt.journal.by_effect(effect.effect_id)
    if effect.state is not _S.COMPENSATED or step is None:  # its line tells of the one that was done after it
        return False
    return step.undone_at is None or marker.started_at is None or step.undone_at >= marker.started_at


async def _end(attempt: Undoer, marker: Step) -> None:
    how = parse(marker.output or b"{}")
    now = attempt.services.time.now()
    over = replace(marker, state=StepState.COMPLETED, fence=attempt.task.fence, finished_at=now)
    undone = sum(1 for effect in attempt.intents.effects.values() if _is_undone_since(attempt, effect, marker))
    ending = Move(
        to=TaskState(how["to"]),
        reason=f"{how['reason']} ({undone} {'step' if undone == 1 else 'steps'} undone)",
        error=how["error"],
        result=how["result"],
        feedback=how["feedback"],
    )
    await attempt.finish(*_tidied(attempt), WriteStep(over), RequireUndo(required=False), ending)
