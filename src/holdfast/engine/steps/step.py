"""Doing one step: replay it if it is recorded; otherwise try, classify, record, and try again.

A step that must not be done twice has its own code, with the same beginning: see effects/once_step.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from contextvars import Token
from datetime import datetime
from typing import Any

from holdfast.engine.attempt.exits import as_failure
from holdfast.engine.attempt.scope import SCOPE, Scope
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.effects.once_step import run_once
from holdfast.engine.runtime import log
from holdfast.engine.runtime.where import current_task
from holdfast.engine.steps import approval
from holdfast.engine.steps.call import (
    CURRENT,
    Call,
    Function,
    StepLine,
    arguments_of,
    describe,
    effect_id,
    fix_arguments,
)
from holdfast.engine.steps.one_try import (
    Recordable,
    after_failure,
    begin,
    digest_arguments,
    failure_of,
    recordable,
    restored,
    tries_of,
    within,
)
from holdfast.engine.steps.permit import begin_try, close_limits
from holdfast.engine.steps.waits import pause_until
from holdfast.model.canonical import digest
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue, StepFailed
from holdfast.model.operations import ConsumeApproval, Operation, RequireUndo, WriteEffect
from holdfast.model.step import OVER, Step, StepState


def perform(attempt: StepOwner, call: Call) -> Coroutine[Any, Any, Any]:
    """Do a step as its terms require."""
    if call.terms is not None and call.terms.effect is EffectClass.ONCE:
        return run_once(attempt, call, call.terms)
    return run_step(attempt, call)


async def run_step(attempt: StepOwner, call: Call) -> Any:  # noqa: ANN401
    """Return the recorded result, or do the step and record it before returning."""
    if attempt.over or attempt.stopping is not None:
        raise Unwind
    known = describe(call.function)
    returns = known.returns if call.returns is None else call.returns
    if call.terms is not None:
        fix_arguments(call)
        attempt.discovery.announce(call)
    recorded = attempt.find(call.key, call.kind)
    attempt.pass_over(call.key)  # earlier tries may have patched the state
    if attempt.discovery.is_under_way:
        await _search(attempt, call, known, recorded)
    if (
        recorded is not None
        and recorded.state in OVER
        and (attempt.discovery.is_under_way or _is_valid(attempt, recorded))
    ):
        await attempt.take_turn(recorded)
        return await replay(attempt, call, recorded, returns)
    tries, identify = tries_of(recorded), _effect_id_of(attempt, call, recorded)
    line = begin(attempt, call, recorded, await digest_arguments(attempt, call.args))
    await _get_ready(attempt, call, recorded, line, identify)
    go_back, branch = attempt.journal.mark(), current_task()
    while True:
        await begin_try(attempt, call)
        attempt.services.store.check_place()
        line.began = line.began or attempt.services.time.now()
        attempt.under_way.begin(line)
        try:
            scope = attempt.under_way.enter(call, go_back=go_back)
            place, token = SCOPE.set(scope), CURRENT.set(identify)
            try:
                if known.is_async and call.timeout is None and not known.takes_effect_id:
                    # The usual case, without another frame of the engine in between.
                    value = await call.function(*call.args_to_call_with())
                else:
                    value = await _limited(attempt, call, known, line.began, identify)
            finally:
                _come_back(place, token)
                if scope.end():
                    await attempt.under_way.leave(scope)
                call.end_permit()
            await attempt.services.turns.wait()
            result = await recordable(attempt, call, value, returns)
        except BaseException as error:  # noqa: BLE001 - the policy decides what it means
            failed = as_failure(error, branch)
        else:
            attempt.under_way.end(line)  # from here on the engine must not record it as running
            return await _record(attempt, call, line, result)
        finally:
            attempt.under_way.end(line)
        await attempt.check()  # the error of a step that was being stopped has no meaning
        await close_limits(attempt, call, failed)
        tries = await after_failure(attempt, call, line, tries, failed)
        line.attempts, line.began = line.attempts + 1, None


def _come_back(place: Token[Scope], token: Token[Callable[[], str]]) -> None:
    """Return to the scope around a step."""
    try:
        CURRENT.reset(token)
        SCOPE.reset(place)
    except ValueError:
        pass  # its asyncio task was dropped, and Python destroys it in the context of another task


def _limited(
    attempt: StepOwner, call: Call, known: Function, began: datetime, identify: Callable[[], str]
) -> Coroutine[Any, Any, Any]:
    return within(attempt, call, call.timeout, began, lambda: _invoke(attempt, call, known, identify))


async def _search(attempt: StepOwner, call: Call, known: Function, recorded: Step | None) -> None:
    """Take part in a discovery replay."""
    if attempt.discovery.looks_inside(call) and (recorded is None or recorded.undone_at is None):
        await _look_inside(attempt, call, known, recorded)
    if recorded is not None and recorded.state is StepState.FAILED:
        await attempt.discovery.let_branches_pass()


async def _look_inside(attempt: StepOwner, call: Call, known: Function, recorded: Step | None) -> None:
    """Run a step's function only to find the steps inside it that must be undone: they replay and do nothing new."""
    identify = _effect_id_of(attempt, call, recorded)
    scope, branch = attempt.under_way.enter(call), current_task()
    place, token = SCOPE.set(scope), CURRENT.set(identify)
    try:
        try:
            await _invoke(attempt, call, known, identify)
        except BaseException as error:  # noqa: BLE001 - it may fail, as it may have failed before
            as_failure(error, branch)
    finally:
        _come_back(place, token)
        if scope.end():
            await attempt.under_way.leave(scope)


def _is_valid(attempt: StepOwner, recorded: Step) -> bool:
    """Whether the record is still valid: neither the step nor anything inside it was undone."""
    return recorded.undone_at is None and not attempt.journal.has_undone_inside(recorded)


async def replay(attempt: StepOwner, call: Call, recorded: Step, returns: object) -> Any:  # noqa: ANN401
    """Return the recorded result, or raise the recorded failure."""
    if recorded.state is StepState.FAILED:
        raise StepFailed(failure_of(recorded), step=call.key)
    if recorded.digest and recorded.digest != await digest_arguments(attempt, call.args):
        log.other_arguments(attempt.task, call.key)
    return await restored(attempt, recorded.output or b"", returns, f"step {call.key!r}")


def _effect_id_of(attempt: StepOwner, call: Call, recorded: Step | None) -> Callable[[], str]:
    known = recorded.effect_id or "" if recorded is not None else ""
    if recorded is not None and recorded.undone_at is None and known:
        return lambda: known  # a step that was done again after an undo has another id than its key gives
    return lambda: effect_id(attempt.task.id, attempt.task.round, call.key, after=known)


async def _get_ready(
    attempt: StepOwner, call: Call, recorded: Step | None, line: StepLine, identify: Callable[[], str]
) -> None:
    """Wait until the next try is due, and, if the terms require it, until a person approves exactly this call."""
    if recorded is not None and recorded.retry_at is not None:
        await pause_until(attempt, recorded, recorded.retry_at)
    if call.terms is None:
        return
    line.effect_id = identifier = identify()
    if call.terms.ask is None:
        return
    arguments = arguments_of(call)
    approval_id = await approval.obtain(attempt, call.key, identifier, call.terms.ask, arguments)
    consume = ConsumeApproval(approval_id=approval_id, effect_id=identifier, arguments_hash=digest(arguments))
    await attempt.outbox.commit(line.written(attempt.task, StepState.RUNNING, error=line.error), consume)


async def _record(attempt: StepOwner, call: Call, line: StepLine, result: Recordable) -> Any:  # noqa: ANN401
    now = attempt.services.time.now()
    written = line.written(attempt.task, StepState.COMPLETED, output=result.output, finished_at=now)
    operations = (written, *written_with(attempt, call, line, result.value))
    if call.is_lazy:
        attempt.outbox.buffer(*operations)
    else:
        await attempt.outbox.commit(*operations)
    return result.returned(call)


def written_with(attempt: StepOwner, call: Call, line: StepLine, value: object) -> tuple[Operation, ...]:
    """Return what is written together with the result: its effect, if it can be undone, and what follows."""
    operations: tuple[Operation, ...] = ()
    if call.terms is not None and call.terms.compensate is not None:
        operations = _undoable(attempt, call, line)
    return operations + call.consequences(value)


def _undoable(attempt: StepOwner, call: Call, line: StepLine) -> tuple[Operation, ...]:
    try:
        arguments = arguments_of(call)
    except InvalidValue:
        arguments = b""  # not data: the undo gets the arguments that the replayed code passes
    effect = Effect(
        effect_id=line.effect_id or "",
        step_key=call.key,
        effect_class=call.terms.effect if call.terms is not None else EffectClass.IDEMPOTENT,
        state=EffectState.DONE,
        round=attempt.task.round,
        fence=attempt.task.fence,
        attempt=line.attempts,
        arguments=arguments or b"null",
        arguments_hash=digest(arguments) if arguments else "",
        compensable=True,
    )
    return WriteEffect(effect), RequireUndo(required=True)


async def _invoke(attempt: StepOwner, call: Call, known: Function, identify: Callable[[], str]) -> Any:  # noqa: ANN401
    named = {"effect_id": identify()} if known.takes_effect_id else {}
    if known.is_async:
        return await call.function(*call.args_to_call_with(), **named)
    args = call.args_to_call_with()  # may fail: only the thread lets go of the permit again
    function = call.function if call.permit is None else call.permit.in_thread(call.function)
    value = await attempt.services.threads.run(lambda: function(*args, **named))
    return await value if inspect.isawaitable(value) else value
