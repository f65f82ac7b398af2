"""Doing one step: replay it if it is recorded; otherwise try, classify, record, and try again."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine import log
from holdfast.engine.definition import is_async, type_hints
from holdfast.engine.journal import stable_bytes
from holdfast.engine.waiting import pause_until
from holdfast.model.canonical import canonical, digest, parse, write_plain
from holdfast.model.codec import decode, round_trip
from holdfast.model.deadline import Deadline
from holdfast.model.errors import CodecError, DeadlineExceeded, StepFailed
from holdfast.model.failure import Failure, Try
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.operations import WriteStep
from holdfast.model.retry import GiveUp, Retry, RetryAt, decide
from holdfast.model.step import Step, StepState

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt

ONE_TRY = Retry(max_attempts=1)
"""What a step gets that names no policy: its failure is the task's to retry."""

_MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True)
class Function:
    """What is known about a step's function before it is called."""

    is_async: bool
    returns: Any
    takes_effect_id: bool


@dataclass(slots=True, eq=False)
class Call:
    """One call of ``ctx.step``."""

    key: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    retry: Retry
    timeout: float | None
    returns: Any
    kind: str = "step"


async def run_step(attempt: Attempt, call: Call) -> Any:  # noqa: ANN401
    """Return the recorded result, or do the step and record it before returning."""
    await attempt.check()
    known = describe(call.function)
    returns = known.returns if call.returns is None else call.returns
    recorded = attempt.find(call.key, call.kind)
    if recorded is not None and recorded.state is StepState.COMPLETED and recorded.undone_at is None:
        return decode(recorded.output or b"", returns, name=f"step {call.key!r}")
    if recorded is not None and recorded.state is StepState.FAILED:
        raise StepFailed(_failure(recorded), step=call.key)
    step = _begin(attempt, call, recorded)
    tries = _failure(step).tries if step.error is not None else ()
    if step.retry_at is not None:
        await pause_until(attempt, step, step.retry_at)
    while True:
        began = step.started_at or attempt.services.time.now()
        await attempt.check()
        attempt.depart(step, began)
        try:
            value = await _call(attempt, call, known, began)
            output, value = round_trip(value, returns, name=f"step {call.key!r}")
        except CodecError as error:
            failed: Exception = error
        except Exception as error:  # noqa: BLE001 - the policy decides what it means
            failed = error
        else:
            attempt.arrive(step)  # from here on nobody may note it as running
            done = _finished(step, StepState.COMPLETED, attempt, began, output=output)
            await attempt.commit(WriteStep(done))
            return value
        finally:
            attempt.arrive(step)
        await attempt.check()  # an error of a step that was being stopped says nothing
        step, tries = await _after_failure(attempt, call, step, tries=tries, error=failed, began=began)


async def _after_failure(
    attempt: Attempt, call: Call, step: Step, *, tries: tuple[Try, ...], error: Exception, began: datetime
) -> tuple[Step, tuple[Try, ...]]:
    """Record the failure; return when it is time for the next try, or raise StepFailed."""
    now = attempt.services.time.now()
    number = len(tries) + 1
    failure = Failure.of(error).after(tries, number=number, at=now)
    decision: RetryAt | GiveUp
    if failure.is_hopeless:
        decision = GiveUp(f"{failure.type_name} is not retried: the code has to change first")
    else:
        random = attempt.services.random.random()
        decision = decide(call.retry, failure.recorded, number, now, random, deadline=attempt.task.deadline)
    if isinstance(decision, GiveUp):
        failure = replace(failure, reason=decision.reason)
        failed = _finished(step, StepState.FAILED, attempt, began, error=canonical(failure.to_json()))
        await attempt.commit(WriteStep(failed))
        raise StepFailed(failure, step=call.key) from error
    error_bytes = canonical(replace(failure, traceback="").to_json())
    again = replace(
        _finished(step, StepState.PENDING, attempt, began, error=error_bytes),
        retry_at=decision.at,
        finished_at=None,
    )
    await attempt.commit(WriteStep(again))
    log.step_retried(attempt.task, call.key, number, f"{failure.type_name}: {failure.message}", decision)
    await pause_until(attempt, again, decision.at)
    return replace(again, attempts=again.attempts + 1, started_at=None, retry_at=None), failure.tries


def describe(function: Callable[..., Any]) -> Function:
    """Look at a function once: signatures are slow to read, and steps are called in loops."""
    code = getattr(function, "__code__", None)
    known = _KNOWN.get(code)
    if known is None:
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # some builtins do not tell
            parameters = {}  # type: ignore[assignment]
        known = Function(
            is_async=is_async(function),
            returns=type_hints(function).get("return", Any),
            takes_effect_id="effect_id" in parameters,
        )
        if code is not None:
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[code] = known
    return known


_KNOWN: dict[object, Function] = {}


def effect_id(task_id: str, round_: int, key: str) -> str:
    """Return the stable id of what a step does to the world: the same for every try, in every attempt."""
    return str(uuid.UUID(bytes=stable_bytes("effect", task_id, round_, key)[:16], version=5))


def _begin(attempt: Attempt, call: Call, recorded: Step | None) -> Step:
    """Return the line of the journal for a step that is about to run."""
    if recorded is None:
        return Step(
            key=call.key,
            kind=call.kind,
            position=attempt.journal.next_position(),
            state=StepState.RUNNING,
            round=attempt.task.round,
            fence=attempt.task.fence,
            digest=_digest(call.args),
        )
    interrupted = recorded.state is StepState.RUNNING
    return replace(
        recorded,
        state=StepState.RUNNING,
        attempts=recorded.attempts + 1,
        fence=attempt.task.fence,
        digest=_digest(call.args),
        # A try that its worker did not survive goes on against the same deadline.
        started_at=recorded.started_at if interrupted else None,
    )


def _finished(
    step: Step,
    state: StepState,
    attempt: Attempt,
    began: datetime,
    *,
    output: bytes | None = None,
    error: bytes | None = None,
) -> Step:
    return Step(
        key=step.key,
        kind=step.kind,
        position=step.position,
        state=state,
        round=step.round,
        attempts=step.attempts,
        fence=step.fence,
        digest=step.digest,
        output=output,
        error=error,
        effect_id=step.effect_id,
        started_at=began,
        finished_at=attempt.services.time.now(),
    )


def _digest(args: tuple[Any, ...]) -> str:
    """Return the digest of a step's arguments; nothing for arguments that are no data."""
    plain = write_plain(list(args), DEFAULT_LIMITS) if args else b"[]"
    return digest(plain) if plain is not None else ""


def _failure(step: Step) -> Failure:
    return Failure.from_json(parse(step.error)) if step.error is not None else Failure(type_name="", message="")


async def _call(attempt: Attempt, call: Call, known: Function, began: datetime) -> Any:  # noqa: ANN401
    if call.timeout is None:
        return await _invoke(attempt, call, known)
    deadline = Deadline(began + timedelta(seconds=call.timeout), f"step {call.key!r}")
    limit = asyncio.timeout(None)
    loop = asyncio.get_running_loop()
    try:
        async with limit:
            ahead = attempt.services.time.seconds_until(deadline.at)
            alarm = attempt.services.alarms.after(ahead, lambda: limit.reschedule(loop.time()))
            try:
                return await _invoke(attempt, call, known)
            finally:
                alarm.cancel()
    except TimeoutError:
        if limit.expired():
            raise DeadlineExceeded(deadline.message(attempt.services.time.now())) from None
        raise


async def _invoke(attempt: Attempt, call: Call, known: Function) -> Any:  # noqa: ANN401
    named = {}
    if known.takes_effect_id:
        named["effect_id"] = effect_id(attempt.task.id, attempt.task.round, call.key)
    if known.is_async:
        return await call.function(*call.args, **named)
    value = await attempt.services.threads.run(lambda: call.function(*call.args, **named))
    return await value if inspect.isawaitable(value) else value
