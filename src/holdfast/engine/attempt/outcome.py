"""How an attempt ended, whether its task is tried again, and the Commit that records it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from holdfast.engine.api.definition import is_async
from holdfast.engine.attempt.code_run import CANCELLED_BY_OTHERS
from holdfast.engine.attempt.context import Context, ContextOwner
from holdfast.engine.attempt.endings import cancelled, handed_back, paused, too_late, unreadable, work_done
from holdfast.engine.attempt.journal import ATTEMPT, RESERVED, VERIFY, ended_by, reopened
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.stop_reasons import Cancelled, DeadlinePassed, HandedBack, Paused, Stop, TimeSpent
from holdfast.engine.attempt.time_limit import in_time
from holdfast.engine.effects import compensation
from holdfast.engine.manage.cancel import cancel_children
from holdfast.engine.runtime import log
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.steps.children import CALLER_OUT_OF_TIME, has_sub_agents_at_work, stop_sub_agents
from holdfast.model.canonical import canonical, parse
from holdfast.model.deadline import Deadline
from holdfast.model.errors import CodecError, Conflict, DeadlineExceeded, HoldfastError, InvalidValue, Rejected
from holdfast.model.failure import Failure, Try, storable
from holdfast.model.operations import Move, Operation, Release, WriteStep
from holdfast.model.payload import from_json, to_json
from holdfast.model.retry import GiveUp, RetryAt, decide
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

OUT_OF_TIME = "its wall time is spent"

KEPT_FOR = 5.0
"""Seconds for which no worker claims a task that a process runs by name: so that this process can lease it again."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The task's code returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The task's code raised, or the engine raised for it."""

    error: BaseException


class BlockingFunctions(Protocol):
    """The blocking functions of the task's code."""

    async def run(self, function: Callable[..., Any], context: Context, /, *args: object) -> Any:  # noqa: ANN401
        """Run one in a thread."""


class Ending(ContextOwner, Protocol):
    """An attempt whose code has ended, or was stopped."""

    task: Task
    ending: bool
    """Its outcome is being recorded: too late to stop it."""
    again_at: datetime | None
    """When the task is to be tried again; set when this attempt puts it back."""

    @property
    def provided(self) -> tuple[Operation, ...]:
        """Conditions for its result to count."""

    @property
    def stays(self) -> bool:
        """Whether this process runs the task by name."""

    @property
    def blocking(self) -> BlockingFunctions:
        """Runs a blocking verifier."""

    async def settle(self) -> None:
        """Let go of the task."""

    async def finish(self, *operations: Operation) -> None:
        """Let go of the task, and write these operations as its last ones."""


async def record(attempt: Ending, ended: Returned | Raised | None) -> None:
    """Record how the task's code ended. After that the attempt is over, or its task is in review."""
    try:
        match ended:
            case Returned(value) if attempt.task.state is TaskState.REVIEW:
                await _record_review(attempt, value)
            case Returned(value):
                await _record_result(attempt, value)
            case Raised(Rejected() as error) if attempt.task.state is TaskState.REVIEW:
                await _record_review(attempt, str(error))  # a person verified the result, and rejected it
            case Raised(error):
                await _record_failure(attempt, error)
    except CodecError as error:
        await _record_failure(attempt, error)
    except InvalidValue as error:
        # No store accepts this outcome, so this error becomes the outcome.
        await _give_up(attempt, "its outcome cannot be stored", error)
    except HoldfastError:
        raise  # the store's answer
    except Exception as error:  # noqa: BLE001 - a defect here must not leave the task running for ever
        await _give_up(attempt, "its outcome cannot be recorded", error)


async def _give_up(attempt: Ending, reason: str, error: Exception) -> None:
    attempt.outbox.forget_buffered()  # perhaps the store refuses these
    failure = replace(Failure.of(error), steps=())
    await _end_badly(attempt, Move(to=TaskState.FAILED, reason=reason, error=failure.to_json(), counts_attempt=True))


async def _end_badly(attempt: Ending, move: Move) -> None:
    """End the task, unless it has to undo its steps first."""
    await attempt.settle()
    await _stop_sub_agents(attempt, move)
    if attempt.outbox.must_undo:
        await attempt.finish(*compensation.beginning(attempt, move))
    else:
        await attempt.finish(move)


async def _stop_sub_agents(attempt: Ending, move: Move) -> None:
    """Stop the sub-agents before the task ends. If this process dies in between, the next worker continues them."""
    store, task = attempt.services.store, replace(attempt.task, version=attempt.outbox.version)
    if await call_store(partial(has_sub_agents_at_work, store, task)):
        await attempt.outbox.commit()  # an attempt that lost its lease stops here, and stops no sub-agent
        await call_store(partial(stop_sub_agents, store, task, move.reason, by=attempt.lease.worker_id))


async def _record_result(attempt: Ending, value: object) -> None:
    """Complete the task, or hand it to its verifier: its code has returned."""
    result = to_json(value, attempt.definition.returns, name="result")
    has_verifier = attempt.definition.verifier is not None
    move = work_done(result, is_verified=has_verifier)
    try:
        if not has_verifier:
            await attempt.finish(*attempt.provided, move)
            return
        attempt.ending = True
        await attempt.outbox.commit(*attempt.provided, move)
    except Conflict as refused:
        if not attempt.provided:
            raise
        again = Move(to=TaskState.PENDING, reason=f"not over yet: {refused}", available_at=_kept(attempt, None))
        await attempt.finish(again)
        return
    log.moved(attempt.task, move)
    attempt.task = replace(attempt.task, state=TaskState.REVIEW, result=result)
    attempt.ending = False
    await attempt.residence.begin_review()


async def ask_verifier(attempt: Ending) -> bool | str:
    """Let the verifier check the result. Return True, or False, or a string: the reason for a rejection."""
    definition = attempt.definition
    if definition.verifier is None:
        return True  # its definition had a verifier when the task went into review, and has none now
    value = from_json(attempt.task.result, definition.returns, name="result")
    context: Any = Context(attempt, prefix=VERIFY)
    if is_async(definition.verifier):
        answer = await definition.verifier(context, value)
    else:
        answer = await attempt.blocking.run(definition.verifier, context, value)
        if inspect.isawaitable(answer):
            answer = await answer
    if not isinstance(answer, bool | str):
        raise InvalidValue(
            f"the verifier of task {definition.name!r} returned {answer!r}; return True to accept, or False or a "
            "string with the reason to reject"
        )
    return answer


async def _record_review(attempt: Ending, answer: bool | str) -> None:  # noqa: FBT001 - it is the verifier's answer
    """Record the verifier's answer: complete the task, or send it back with the reason."""
    task = attempt.task
    if answer is True:
        await attempt.finish(Move(to=TaskState.COMPLETED, reason="verified", result=task.result))
        return
    why = storable(answer) if isinstance(answer, str) and answer else "rejected by its verifier"
    if task.attempts + 1 < attempt.definition.retry.max_attempts:
        again = Move(
            to=TaskState.PENDING,
            reason=f"rejected: {why}",
            available_at=_kept(attempt, None),
            counts_attempt=True,
            new_round=True,
            feedback=why,
        )
        await attempt.finish(again)
        return
    failure = Failure(
        type_name="Rejected", message=why, reason=f"rejected {task.attempts + 1} times", type_names=("Rejected",)
    )
    move = Move(
        to=TaskState.FAILED,
        reason=f"rejected, no attempts left: {why}",
        result=task.result,
        error=failure.to_json(),
        counts_attempt=True,
        feedback=why,
    )
    await _end_badly(attempt, move)


async def _record_failure(attempt: Ending, error: BaseException) -> None:
    """Retry the task later, or fail it: its code raised."""
    services, task, policy = attempt.services, attempt.task, attempt.definition.retry
    now, number = services.time.now(), task.attempts + 1
    failure = Failure.of(error)
    decision: RetryAt | GiveUp
    if (hopeless := failure.hopeless) is not None:
        decision = GiveUp(hopeless)
    else:
        decision = decide(policy, failure.recorded, number, now, services.random.random(), deadline=task.deadline)
        decision = in_time(attempt.time_limit, decision)
    if isinstance(decision, RetryAt):
        what = f"{failure.type_name}: {failure.message}"
        await attempt.finish(
            *_run_again(attempt, failure.steps),
            WriteStep(_failed_attempt(attempt, failure, number)),
            Move(
                to=TaskState.PENDING,
                reason=f"attempt {number} of {policy.max_attempts} failed, again in {decision.delay:.3g} s: {what}",
                available_at=_kept(attempt, _before_asking(attempt, decision.at)),
                counts_attempt=True,
            ),
        )
        return
    failure = replace(failure.after(_earlier_tries(attempt), number=number, at=now), reason=decision.reason)
    await _end_badly(
        attempt,
        Move(
            to=TaskState.FAILED,
            reason=f"{decision.reason}: {failure.type_name}: {failure.message}",
            error=failure.to_json(),
            counts_attempt=True,
        ),
    )


def _before_asking(attempt: Ending, at: datetime) -> datetime:
    """Return when the next attempt is due: not after the moment at which a person must be asked for more time."""
    asks_at = None if attempt.time_limit is None else attempt.time_limit.asks_at
    return at if asks_at is None else min(at, asks_at)


def _kept(attempt: Ending, at: datetime | None) -> datetime | None:
    """Return when workers may claim the task: not before the process that runs it by name could lease it again."""
    if not attempt.stays:
        return at
    now = attempt.services.time.now()
    attempt.again_at = at or now
    return max(attempt.again_at, now + timedelta(seconds=KEPT_FOR))


async def record_stop(attempt: Ending, why: Stop) -> None:
    """Record why the attempt was stopped."""
    match why:
        case Cancelled(reason):
            attempt.ending = True
            await attempt.outbox.commit()  # after all that was already sent, such as the submit of a child
            store, by = attempt.services.store, attempt.lease.worker_id
            await call_store(lambda: cancel_children(store, attempt.task.id, reason, by=by))
            await _end_badly(attempt, cancelled(reason))
        case DeadlinePassed():
            await _end_badly(attempt, _late(attempt))
        case TimeSpent(asks=False):
            await _end_badly(attempt, _out_of_time(attempt, why))
        case TimeSpent() if attempt.task.state is TaskState.RUNNING:
            # The next attempt asks a person first. After that it deals with what this attempt left unfinished.
            again = Move(to=TaskState.PENDING, reason=OUT_OF_TIME, available_at=_kept(attempt, None))
            await attempt.finish(again)
        case HandedBack() if attempt.task.state is TaskState.RUNNING:
            await attempt.finish(handed_back())
        case Paused() if attempt.task.state is TaskState.RUNNING:
            await attempt.finish(replace(paused(), available_at=_kept(attempt, None)))
        case HandedBack() | Paused() | TimeSpent():
            await attempt.finish(Release())
        case _:
            pass  # the lease is over


def _late(attempt: Ending) -> Move:
    now = attempt.services.time.now()
    deadline = Deadline(attempt.task.deadline or now, f"task {attempt.task.id}")
    failure = Failure.of(DeadlineExceeded(deadline.message(now)))
    return too_late(failure.after(_earlier_tries(attempt), number=attempt.task.attempts + 1, at=now))


def _out_of_time(attempt: Ending, why: TimeSpent) -> Move:
    now, number = attempt.services.time.now(), attempt.task.attempts + 1
    failure = replace(Failure.of(why.error).after(_earlier_tries(attempt), number=number, at=now), traceback="")
    reason = OUT_OF_TIME if why.caller is None else CALLER_OUT_OF_TIME
    return Move(to=TaskState.FAILED, reason=reason, error=failure.to_json())


async def record_poison(attempt: Ending) -> None:
    """Fail a task without running it: its code ignored too many stops."""
    stops = attempt.journal.ignored_stops()
    last = Failure.from_json(parse(stops[-1].error or b"null"))
    if last.message == CANCELLED_BY_OTHERS:
        message = (
            f"{len(stops)} of its attempts were ended by other code, the last time because {CANCELLED_BY_OTHERS}; "
            "change that, then resume the task"
        )
    else:
        message = (
            f"its code caught the signal that stops it, and continued, {len(stops)} times"
            f"{f', the last time at {last.where}' if last.where else ''}. {log.WHAT_TO_CHANGE}; then resume the task"
        )
    failure = Failure(
        type_name="Poison",
        type_names=("Poison",),
        message=message,
        reason="poison",
        where=last.where,
    )
    # Nothing is undone, as with any poison: after a person has fixed the code, the task continues where it was.
    move = Move(to=TaskState.FAILED, reason="poison", error=failure.to_json())
    await _stop_sub_agents(attempt, move)
    await attempt.finish(move)


async def record_unreadable(attempt: Ending, error: Exception) -> None:
    """Fail a task without running it: what is stored of it cannot be read.

    Nothing is undone: what has to be undone may be in the row that cannot be read. After a person has put the value
    back, the task continues where it was.
    """
    log.unreadable(attempt.task.id, error)
    move = unreadable(error)
    await _stop_sub_agents(attempt, move)
    await attempt.finish(move)


def _run_again(attempt: Ending, keys: tuple[str, ...]) -> list[Operation]:
    """Reopen the steps that ended the attempt: they run again in the next one. Failures that were handled replay."""
    return [WriteStep(reopened(step)) for step in ended_by(keys, attempt.journal.get)]


def _failed_attempt(attempt: Ending, failure: Failure, number: int) -> Step:
    return journal_line(
        attempt,
        f"{RESERVED}attempt-{number}",
        ATTEMPT,
        state=StepState.FAILED,
        error=canonical(failure.to_json()),
        started_at=attempt.task.started_at,
    )


def _earlier_tries(attempt: Ending) -> tuple[Try, ...]:
    tries = []
    for step in attempt.journal.failed_attempts():
        failure = Failure.from_json(parse(step.error or b"null"))
        number = int(step.key.rpartition("-")[2])
        at = step.finished_at or attempt.services.time.now()
        tries.append(Try(number=number, type_name=failure.type_name, message=failure.message, at=at))
    return tuple(tries)
