"""Sagas: undoing what was done, in reverse, when a task fails, is cancelled, or runs out of time.

First one Commit puts the task back into its queue, with a line in its journal that records how it will end. The worker
that claims it replays the code, without any new step, to find how each step is undone. Then it resolves the effects in
doubt, undoes what was done, and ends the task. If this worker dies, the next one finds the same line.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from holdfast.engine.attempt.journal import RESERVED, Journal, reopened
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.scope import enclosing_path, path_inside
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.effects import doubt
from holdfast.engine.effects.once_step import OnceStep
from holdfast.engine.runtime import log
from holdfast.engine.runtime.store_retry import call_store
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
"""The states that concern a saga even if the step had no ``compensate=``, or has one only now."""
_ABOUT_AN_UNDO = (Decision.COMPENSATE, Decision.UNDONE, Decision.ABANDON)


def begun(journal: Journal) -> Step | None:
    """Return the line of the saga, if the task is undoing its steps; otherwise None."""
    marker = journal.get(MARKER)
    return marker if marker is not None and marker.state is StepState.RUNNING else None


class Undoer(StepOwner, Protocol):
    """An attempt that undoes the steps of its task, and then ends it."""

    task: Task

    async def finish(self, *operations: Operation) -> None:
        """Let go of the task, and write these operations as its last ones."""


def beginning(attempt: StepOwner, ending: Move) -> tuple[Operation, ...]:
    """Return the operations that put a task back into its queue, to undo its steps and then end with ``ending``."""
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
    """Undo what can be undone, in reverse, let people decide about the rest, and end the task."""
    await attempt.discovery.look_for({effect.step_key for effect in _to_do(attempt)})
    await attempt.check()  # a replay that was stopped may have missed steps
    attempt.task = replace(attempt.task, deadline=None)  # the deadline does not limit undoing: it gets all of its tries
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
    """Undo effects, the last first; return those that need a person. A step waits for the steps inside it."""
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
    """Withdraw the open questions of the task's code: the code will never use the answers."""
    store, worker = attempt.services.store, attempt.lease.worker_id
    for asked in await call_store(
        lambda: store.approvals(task_id=attempt.task.id, states={ApprovalState.OPEN}, limit=doubt.MOST_OPEN)
    ):
        if asked.kind != doubt.DOUBT:
            with suppress(Conflict):  # it was decided meanwhile, or has expired
                note = "the task undoes its steps"
                await attempt.outbox.commit(
                    Decide(approval_id=asked.id, state=ApprovalState.VOID, by=worker, note=note)
                )


async def _undo_or_once_more(attempt: StepOwner, effect: Effect) -> bool:
    """Undo one effect. A person may have asked for another try of its undo while no worker had the task."""
    asked = attempt.journal.get(_decision_key(effect))
    if effect.state is _S.COMPENSATING and asked is not None and asked.state is StepState.PENDING:
        return await _once_more(attempt, effect)
    return await _undo(attempt, effect)


async def undo_now(attempt: StepOwner, effect: Effect) -> Effect:
    """Undo one effect at a person's request, while the task continues; return its new record."""
    if not await _undo_or_once_more(attempt, effect):
        await _until_undone(attempt, effect)
    return attempt.intents.effects[effect.effect_id]


def _to_do(attempt: StepOwner) -> list[Effect]:
    """Return the effects that still concern a saga, the last first, and what is inside a step before the step."""
    effects = [
        effect
        for effect in attempt.intents.effects.values()
        if not effect.step_key.startswith(RESERVED)
        and (effect.state in _ALWAYS or (effect.compensable and effect.state is _S.DONE))
    ]
    return _last_first(attempt, effects)


def _last_first(attempt: StepOwner, effects: list[Effect]) -> list[Effect]:
    """Sort effects by when their steps began.

    A step began before what is inside it. Its line may say otherwise: a step that only a later life ended has the
    position of that life.
    """
    lines = {effect.effect_id: attempt.journal.by_effect(effect.effect_id) for effect in effects}
    began = {one: (0 if line is None else line.position, 0) for one, line in lines.items()}
    steps = {(line.round, path_inside(line.key)): one for one, line in lines.items() if line is not None}
    for line in lines.values():
        if line is None:
            continue
        path, depth = enclosing_path(line.key), 0
        while path:
            depth -= 1
            if (outer := steps.get((line.round, path))) is not None:
                began[outer] = min(began[outer], (line.position, depth))
            path = attempt.journal.digests.around(path)
    return sorted(effects, key=lambda effect: began[effect.effect_id], reverse=True)


def _undo_key(effect: Effect) -> str:
    return f"{MARKER}:{effect.effect_id}"


def _is_about_its_undo(attempt: StepOwner, effect: Effect) -> bool:
    """Return whether a person is asked about the undo of an effect, not about the effect itself."""
    return effect.state is _S.NEEDS_HUMAN and attempt.journal.get(_undo_key(effect)) is not None


async def _clear_up(attempt: StepOwner, effect: Effect) -> None:
    """Find out whether an effect happened, before anything is undone."""
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
    """Return the step of an effect, if the code still has it unchanged."""
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
    """Wait until a call has settled that was decided before that; return False if it has already settled."""
    at = effect.settle_at
    if at is None or attempt.services.time.now() >= at:
        return False
    line = replace(_line(attempt, f"{MARKER}-settle:{effect.effect_id}", StepState.PENDING), retry_at=at)
    await pause_until(attempt, line, at)
    await doubt.read_again(attempt, effect)
    return True


async def _undo(attempt: StepOwner, effect: Effect) -> bool:
    """Undo one effect; return False if it needs a person."""
    if effect.state is _S.NEEDS_HUMAN:
        return False
    step = attempt.journal.by_effect(effect.effect_id)
    if effect.result is not None or step is None or step.output is None:
        # The engine has not seen its call return: it may still arrive at its receiver, even after its undo.
        await _settles(attempt, effect)
    if effect.state is _S.DONE:
        effect = replace(effect, state=_S.COMPENSATING)
        await attempt.outbox.commit(WriteEffect(effect))
    try:
        call = _undo_call(attempt, effect)
        await (run_undo(attempt, call) if _is_in_transaction(attempt, effect) else perform(attempt, call))
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the reason, a person has to know that it was not undone
        attempt.fatal = None
        await _ask_about_undo(attempt, effect, error)
        return False
    return True


async def _once_more(attempt: StepOwner, effect: Effect) -> bool:
    """Try an undo again at a person's request, whatever its last outcome; return False if it needs a person again.

    The decision counts once: the Commit that follows it marks it as used.
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
    """Return the effect of the undo itself, if it has one."""
    key = _undo_key(effect)
    return next((one for one in attempt.intents.effects.values() if one.step_key == key), None)


def _undo_call(attempt: StepOwner, effect: Effect) -> Call:
    call = attempt.intents.calls.get(effect.step_key)
    compensation = call.terms.compensate if call is not None and call.terms is not None else None
    if call is None or compensation is None:
        raise InvalidValue(f"the code no longer has a way to undo step {effect.step_key!r}")
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
    fix_arguments(undo)  # every try must get the same arguments
    return undo


def _is_in_transaction(attempt: StepOwner, effect: Effect) -> bool:
    call = attempt.intents.calls.get(effect.step_key)
    return call is not None and call.terms is not None and call.terms.undone_in_transaction


def _result(attempt: StepOwner, effect: Effect, call: Call) -> Any:  # noqa: ANN401
    """Return the step's result; None if it is not known."""
    returns = describe(call.function).returns if call.returns is None else call.returns
    step = attempt.journal.by_effect(effect.effect_id)
    if step is not None and step.output is not None:
        return decode(step.output, returns, name=f"step {effect.step_key!r}")
    return from_json(parse(effect.result or b"null"), returns, name=f"step {effect.step_key!r}")


def _arguments(effect: Effect, call: Call) -> tuple[Any, ...]:
    """Return the step's arguments: those that the code passes now, unless other ones were recorded."""
    if not effect.arguments_hash or effect.arguments_hash == digest(arguments_of(call)):
        return call.args
    return tuple(decode(effect.arguments, name=f"arguments of step {effect.step_key!r}"))


def _undone(attempt: StepOwner, effect: Effect) -> tuple[Operation, ...]:
    step = attempt.journal.by_effect(effect.effect_id)
    done = WriteEffect(replace(effect, state=_S.COMPENSATED))
    if step is None or attempt.undoing is None:  # while the task continues, the step fails: it must not be done again
        return (done,)
    return WriteStep(replace(step, undone_at=attempt.services.time.now())), done


async def _ask_about_undo(attempt: StepOwner, effect: Effect, error: Exception) -> None:
    note = storable(f"its compensation failed: {error}", 1000)
    stuck = replace(effect, state=_S.NEEDS_HUMAN, note=note)
    question = doubt.question_about(attempt, stuck, _ABOUT_AN_UNDO)
    question = replace(question, question=f"Step {effect.step_key!r} of {attempt.task.name!r} was not undone: {note}")
    waiting = _line(attempt, _decision_key(effect), StepState.PENDING)
    operations: list[Operation] = [WriteEffect(stuck), OpenApproval(question), WriteStep(waiting)]
    if attempt.journal.get(_undo_key(effect)) is None:  # the compensation could not be called
        operations.append(WriteStep(_line(attempt, _undo_key(effect), StepState.FAILED)))
    await attempt.outbox.commit(*operations)
    log.needs_human(attempt.task, stuck)


async def _until_undone(attempt: StepOwner, effect: Effect) -> None:
    """Wait for a person's decision about an undo that failed, and follow it."""
    while True:
        waiting = _line(attempt, _decision_key(effect), StepState.PENDING)
        standing = await doubt.ask_person(attempt, attempt.intents.effects[effect.effect_id], waiting, _ABOUT_AN_UNDO)
        if standing.state is not _S.COMPENSATING or await _once_more(attempt, standing):
            return


def _decision_key(effect: Effect) -> str:
    """Return the key of the line that is pending until a person has decided and a worker has followed the decision."""
    return f"{_undo_key(effect)}:decision"


def _line(attempt: StepOwner, key: str, state: StepState) -> Step:
    """Return a line of the journal for the saga itself."""
    now = attempt.services.time.now()
    return journal_line(attempt, key, "undo", attempt.journal.get(key), state=state, started_at=now)


def _follow_ups(attempt: StepOwner) -> list[Operation]:
    """Return what follows from people's decisions: lines of steps undone by hand, and undos no longer in doubt."""
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
    """Return whether an effect was undone by this saga, and not before the task was revived."""
    step = attempt.journal.by_effect(effect.effect_id)
    if effect.state is not _S.COMPENSATED or step is None:  # its line now belongs to a later effect
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
    await attempt.finish(*_follow_ups(attempt), WriteStep(over), RequireUndo(required=False), ending)
