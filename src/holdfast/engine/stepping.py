"""Doing one step: replay it if it is recorded; otherwise try, classify, record, and try again."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine import log
from holdfast.engine.definition import is_async, type_hints
from holdfast.engine.journal import stable_bytes
from holdfast.engine.signals import Unwind
from holdfast.engine.waiting import pause_until
from holdfast.model.canonical import canonical, digest, parse, write_plain
from holdfast.model.codec import decode, round_trip
from holdfast.model.deadline import Deadline
from holdfast.model.errors import DeadlineExceeded, StepFailed
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
_NO_ARGUMENTS = digest(b"[]")
_OVER = (StepState.COMPLETED, StepState.FAILED)


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


@dataclass(slots=True, eq=False)
class Line:
    """The line of the journal that a step under way will become."""

    key: str
    kind: str
    position: int
    digest: str
    attempts: int = 1
    began: datetime | None = None
    error: bytes | None = None
    """The tries before this one."""

    def written(
        self,
        attempt: Attempt,
        state: StepState,
        *,
        output: bytes | None = None,
        error: bytes | None = None,
        finished_at: datetime | None = None,
        retry_at: datetime | None = None,
    ) -> WriteStep:
        """Return the operation that writes it as it stands."""
        return WriteStep(
            Step(
                key=self.key,
                kind=self.kind,
                position=self.position,
                state=state,
                round=attempt.task.round,
                attempts=self.attempts,
                fence=attempt.task.fence,
                digest=self.digest,
                output=output,
                error=error,
                started_at=self.began,
                finished_at=finished_at,
                retry_at=retry_at,
            )
        )


async def run_step(attempt: Attempt, call: Call) -> Any:  # noqa: ANN401
    """Return the recorded result, or do the step and record it before returning."""
    if attempt.over or attempt.stopping is not None:
        raise Unwind
    known = describe(call.function)
    returns = known.returns if call.returns is None else call.returns
    recorded = attempt.find(call.key, call.kind)
    if recorded is not None and recorded.state in _OVER and recorded.undone_at is None:
        return _replay(attempt, call, recorded, returns)
    tries = _failure(recorded).tries if recorded is not None and recorded.error is not None else ()
    if recorded is not None and recorded.retry_at is not None:
        await pause_until(attempt, recorded, recorded.retry_at)
    line = _begin(attempt, call, recorded)
    while True:
        await attempt.check()
        line.began = line.began or attempt.services.time.now()
        attempt.depart(line)
        try:
            if known.is_async and call.timeout is None and not known.takes_effect_id:
                value = await call.function(*call.args)  # the usual case, without a frame of ours in between
            else:
                value = await _call(attempt, call, known, line.began)
            output, value = round_trip(value, returns, name=f"step {call.key!r}")
        except Exception as error:  # noqa: BLE001 - the policy decides what it means
            failed = error
        else:
            attempt.arrive(line)  # from here on nobody may note it as running
            now = attempt.services.time.now()
            await attempt.commit(line.written(attempt, StepState.COMPLETED, output=output, finished_at=now))
            return value
        finally:
            attempt.arrive(line)
        await attempt.check()  # an error of a step that was being stopped says nothing
        tries = await _after_failure(attempt, call, line, tries, failed)
        line.attempts, line.began = line.attempts + 1, None


def _replay(attempt: Attempt, call: Call, recorded: Step, returns: object) -> Any:  # noqa: ANN401
    """Return, or raise, what the step did when it ran."""
    if recorded.state is StepState.FAILED:
        raise StepFailed(_failure(recorded), step=call.key)
    if recorded.digest and recorded.digest != _digest(call.args):
        log.other_arguments(attempt.task, call.key)
    return decode(recorded.output or b"", returns, name=f"step {call.key!r}")


async def _after_failure(
    attempt: Attempt, call: Call, line: Line, tries: tuple[Try, ...], error: Exception
) -> tuple[Try, ...]:
    """Record the failure; return when it is time for the next try, or raise StepFailed."""
    now = attempt.services.time.now()
    number = tries[-1].number + 1 if tries else 1  # of many, only the last are kept
    failure = Failure.of(error).after(tries, number=number, at=now)
    decision: RetryAt | GiveUp
    if failure.is_hopeless:
        decision = GiveUp(f"{failure.type_name} is not retried: the code has to change first")
    else:
        random = attempt.services.random.random()
        decision = decide(call.retry, failure.recorded, number, now, random, deadline=attempt.task.deadline)
    if isinstance(decision, GiveUp):
        failure = replace(failure, reason=decision.reason)
        body = canonical(failure.to_json())
        await attempt.commit(line.written(attempt, StepState.FAILED, error=body, finished_at=now))
        raise StepFailed(failure, step=call.key) from error
    body = canonical(replace(failure, traceback="").to_json())
    line.error = body
    again = line.written(attempt, StepState.PENDING, error=body, retry_at=decision.at)
    await attempt.commit(again)
    log.step_retried(attempt.task, call.key, number, f"{failure.type_name}: {failure.message}", decision)
    await pause_until(attempt, again.step, decision.at)
    return failure.tries


def describe(function: Callable[..., Any]) -> Function:
    """Look at a function once: signatures are slow to read, and steps are called in loops."""
    # By its code, because a function defined inside another one is a new object each time. Not where the same code may
    # stand for functions of different signatures: under a decorator, or as a closure.
    plain = getattr(function, "__closure__", True) is None and not hasattr(function, "__wrapped__")
    code = getattr(function, "__code__", None) if plain else None
    known = _KNOWN.get(code)
    if known is None:
        parameters: Mapping[str, inspect.Parameter] = {}
        with suppress(TypeError, ValueError):  # some builtins do not tell
            parameters = inspect.signature(function).parameters
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


def _begin(attempt: Attempt, call: Call, recorded: Step | None) -> Line:
    """Return the line of the journal for a step that is about to run."""
    if recorded is None:
        return Line(call.key, call.kind, attempt.journal.next_position(), _digest(call.args))
    interrupted = recorded.state is StepState.RUNNING
    return Line(
        call.key,
        call.kind,
        recorded.position,
        _digest(call.args),
        attempts=recorded.attempts + 1,
        # A try that its worker did not survive goes on against the same deadline.
        began=recorded.started_at if interrupted else None,
        error=recorded.error,
    )


def _digest(args: tuple[Any, ...]) -> str:
    """Return the digest of a step's arguments; nothing for arguments that are no data."""
    if not args:
        return _NO_ARGUMENTS
    plain = write_plain(list(args), DEFAULT_LIMITS)
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
            message = f"not over within its timeout of {call.timeout:g} s: "
            raise DeadlineExceeded(message + deadline.message(attempt.services.time.now())) from None
        raise


async def _invoke(attempt: Attempt, call: Call, known: Function) -> Any:  # noqa: ANN401
    named = {}
    if known.takes_effect_id:
        named["effect_id"] = effect_id(attempt.task.id, attempt.task.round, call.key)
    if known.is_async:
        return await call.function(*call.args, **named)
    value = await attempt.services.threads.run(lambda: call.function(*call.args, **named))
    return await value if inspect.isawaitable(value) else value
