"""One try of a step: its timeout, its result, and what follows if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.attempt.stuck_code import UNWIND_WITHIN, Driven, SetAside
from holdfast.engine.attempt.time_limit import in_time
from holdfast.engine.runtime import log
from holdfast.engine.runtime.loop_turns import BYTES_LIKE_A_LINE
from holdfast.engine.steps.call import Call, StepLine, digest_of
from holdfast.engine.steps.waits import pause_until
from holdfast.model import large_values
from holdfast.model.canonical import canonical, digest, parse
from holdfast.model.codec import decode, round_trip
from holdfast.model.deadline import Deadline
from holdfast.model.errors import DeadlineExceeded, StepFailed
from holdfast.model.failure import Failure, Try
from holdfast.model.large_values import is_large, is_large_encoded, write_in_pieces
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.operations import Operation
from holdfast.model.retry import GiveUp, RetryAt, decide, matches
from holdfast.model.step import Step, StepState


def begin(attempt: StepOwner, call: Call, recorded: Step | None, arguments: str) -> StepLine:
    """Return the line of the journal for a step that is about to run; ``arguments`` is their digest.

    It has no start time. A try whose worker died, or handed the task back, runs again as a whole: its timeout counts
    from the next call of its function.
    """
    if recorded is None:
        return StepLine(call.key, call.kind, attempt.journal.next_position(), arguments)
    return StepLine(
        call.key,
        call.kind,
        # Done again after a saga: its new position is after all earlier steps, so that the next saga undoes it first.
        attempt.journal.next_position() if attempt.journal.was_undone else recorded.position,
        arguments,
        attempts=recorded.attempts + 1,
        error=recorded.error if recorded.undone_at is None else None,
    )


async def within(
    attempt: StepOwner,
    call: Call,
    seconds: float | None,
    began: datetime,
    invoke: Callable[[], Coroutine[Any, Any, Any]],
) -> Any:  # noqa: ANN401
    """Call it, for no longer than its timeout; ``began`` is when this try began, in this process.

    Code that catches the cancellation and continues is set aside after a while: it is never resumed.
    """
    if seconds is None:
        return await invoke()
    deadline = Deadline(began + timedelta(seconds=seconds), f"step {call.key!r}")
    limit, alarms = asyncio.timeout(None), attempt.services.alarms
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    is_given_up = False
    code = Driven(invoke(), lambda: is_given_up)
    alarm = alarms.after(attempt.services.time.seconds_until(deadline.at), lambda: expire())  # noqa: PLW0108 - below

    def expire() -> None:
        nonlocal alarm
        if attempt.code_run.abandoned_at is not None:
            return  # the code was abandoned, and with it the block that cancels this alarm
        limit.reschedule(loop.time())
        alarm = alarms.after(UNWIND_WITHIN, give_up)

    def give_up() -> None:
        nonlocal alarm, is_given_up
        if attempt.code_run.abandoned_at is not None:
            return
        if attempt.outbox.is_sending:  # the code, or something that it awaits, may wait for the store
            alarm = alarms.after(1.0, give_up)
            return
        log.ignored_timeout(attempt.task, f"step {call.key!r}", code.where)
        is_given_up = True
        task.cancel()

    try:
        async with limit:
            try:
                return await code
            finally:
                alarm.cancel()
    except SetAside:
        task.uncancel()
    except TimeoutError:
        if not limit.expired():
            raise
    message = f"not over within its timeout of {seconds:g} s: "
    raise DeadlineExceeded(message + deadline.message(attempt.services.time.now())) from None


@dataclass(slots=True)
class Recordable:
    """A step's result, ready to be recorded."""

    output: bytes
    """As it is stored."""
    value: Any
    """As the code sees it."""
    _cancelled: asyncio.CancelledError | None = None

    def returned(self, call: Call) -> Any:  # noqa: ANN401
        """Return it to the code, once it is recorded. Raise a cancellation that came while it was encoded."""
        self.check()
        return call.recorded_result(self.value)

    def check(self) -> None:
        """Raise a cancellation that came while it was encoded: as if it had come while the Commit was sent."""
        if self._cancelled is not None:
            raise self._cancelled


async def recordable(attempt: StepOwner, call: Call, value: object, returns: object) -> Recordable:
    """Encode a step's result; a large one takes several turns of the loop. The result of an undo is dropped."""
    value, name = None if call.kind == "undo" else value, f"step {call.key!r}"
    if is_large(value):
        turns = attempt.services.turns
        (output, value), cancelled = await turns.spread_to_end(large_values.round_trip(value, returns, name=name))
        return Recordable(output, value, cancelled)
    output, value = round_trip(value, returns, name=name)
    if len(output) >= BYTES_LIKE_A_LINE:
        attempt.services.turns.count_bytes(len(output))
    return Recordable(output, value)


async def restored(attempt: StepOwner, output: bytes, returns: object, name: str) -> Any:  # noqa: ANN401
    """Return a recorded result as the code sees it."""
    if not is_large_encoded(output) or attempt.discovery.is_under_way:
        return decode(output, returns, name=name)
    with attempt.under_way.busy():  # this branch does not wait for anything outside
        return await attempt.services.turns.spread(large_values.decode(output, returns, name=name))


async def digest_arguments(attempt: StepOwner, args: tuple[Any, ...]) -> str:
    """Return the digest of a step's arguments: see digest_of."""
    if not args or not is_large(args) or attempt.discovery.is_under_way:
        return digest_of(args)
    with attempt.under_way.busy():
        written = write_in_pieces(list(args), DEFAULT_LIMITS)
        plain = await attempt.services.turns.spread(written)
    return digest(plain) if plain is not None else ""


async def after_failure(
    attempt: StepOwner, call: Call, line: StepLine, tries: tuple[Try, ...], error: Exception, *operations: Operation
) -> tuple[Try, ...]:
    """Record the failure. Wait until the next try is due and return all tries, or raise StepFailed."""
    now = attempt.services.time.now()
    number = tries[-1].number + 1 if tries else 1  # only the last tries are kept, so their count is not the number
    failure = Failure.of(error)
    is_away = matches(failure.recorded, call.retry.away_on)
    failure = failure.after(tries, number=number, at=now, is_away=is_away)
    decision: RetryAt | GiveUp
    if (hopeless := failure.hopeless) is not None:
        decision = GiveUp(hopeless)
    else:
        random = attempt.services.random.random()
        counted = _counted(failure.tries)
        decision = decide(call.retry, failure.recorded, counted, now, random, deadline=attempt.task.deadline)
        decision = in_time(attempt.time_limit, decision)
    if isinstance(decision, GiveUp):
        failure = replace(failure, reason=decision.reason)
        body = canonical(failure.to_json())
        await attempt.outbox.commit(
            line.written(attempt.task, StepState.FAILED, error=body, finished_at=now), *operations
        )
        raise StepFailed(failure, step=call.key) from error
    body = canonical(replace(failure, traceback="").to_json())
    line.error = body
    again = line.written(attempt.task, StepState.PENDING, error=body, retry_at=decision.at)
    await attempt.outbox.commit(again, *attempt.under_way.reopening(call, failure.steps), *operations)
    log.step_retried(attempt.task, call.key, number, f"{failure.type_name}: {failure.message}", decision)
    await pause_until(attempt, again.step, decision.at)
    return failure.tries


def _counted(tries: tuple[Try, ...]) -> int:
    """Return the number of the last try among tries of its sort.

    Tries that did not reach the other side are counted as a sequence, and do not use up the other tries.
    """
    if tries[-1].is_away:
        return sum(1 for _ in takewhile(lambda one: one.is_away, reversed(tries)))
    return tries[-1].number - sum(one.is_away for one in tries)


def failure_of(step: Step) -> Failure:
    """Return the failure that a step recorded."""
    return Failure.from_json(parse(step.error)) if step.error is not None else Failure(type_name="", message="")


def tries_of(recorded: Step | None) -> tuple[Try, ...]:
    """Return the tries that a step has made so far."""
    return failure_of(recorded).tries if recorded is not None and recorded.error is not None else ()
