"""Evidence: late reports of what a worker learned about a call after its lease was over.

A late result changes no state by itself: the attempt that resolves the doubt reads it first. If the doubt was already
resolved wrongly, the report reopens it for a person.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.engine.attempt.exits import as_failure
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.runtime import log
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.runtime.threads import Late, drop
from holdfast.model.canonical import canonical, parse
from holdfast.model.commit import Commit, Expect
from holdfast.model.doubt import Happened, Unknown
from holdfast.model.effect import NOT_MADE, Effect, EffectState, Evidence
from holdfast.model.errors import CodecError, HoldfastError
from holdfast.model.failure import raised_by_code, storable
from holdfast.model.operations import WriteEffect
from holdfast.model.payload import from_json, to_json
from holdfast.model.task import JsonValue, Task

if TYPE_CHECKING:
    from holdfast.engine.runtime.services import Services

_S = EffectState
_NOT_HAPPENED = NOT_MADE | {_S.ABANDONED, _S.COMPENSATED}
"""States that a late report of a returned call contradicts."""

RETURNED, RAISED = "returned", "raised"

_LOOK_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one call, reported late."""

    outcome: str
    """returned or raised."""
    attempt: int
    result: JsonValue = None
    error: str = ""
    """What it raised; or why its result could not be stored."""

    def to_bytes(self) -> bytes:
        """Return it as the body of a piece of evidence."""
        return canonical({"outcome": self.outcome, "attempt": self.attempt, "result": self.result, "error": self.error})

    @classmethod
    def of(cls, evidence: Evidence) -> Report:
        """Read a body. Of a body with another form, only what fits is read."""
        body = parse(evidence.body)
        known = body if isinstance(body, dict) else {}
        return cls(
            outcome=str(known.get("outcome", "")),
            attempt=int(known.get("attempt", 0)),
            result=known.get("result"),
            error=str(known.get("error", "")),
        )


# Reading


async def happened(attempt: StepOwner, effect: Effect, returns: object) -> Happened | Unknown | None:
    """Return the result of the call, if there is a late report that it returned; otherwise None."""
    for _, report in await _reports(attempt, effect):
        if report.outcome == RETURNED:
            if report.error:
                return Unknown(f"it did happen, but its result cannot be stored: {report.error}")
            return Happened(from_json(report.result, returns, name="a reported result"))
    return None


async def has_returned_since(attempt: StepOwner, effect: Effect) -> bool:
    """Return whether a late report came after the last change of the effect: earlier reports were known by then."""
    return any(
        report.outcome == RETURNED and (effect.updated_at is None or found.at is None or found.at > effect.updated_at)
        for found, report in await _reports(attempt, effect)
    )


@dataclass(frozen=True, slots=True)
class Thread:
    """What is known about the thread of a call. No timeout stops a thread."""

    may_go_on: bool
    ended_at: datetime | None = None
    """When its end was reported, if it was."""


async def thread_of(attempt: StepOwner, effect: Effect) -> Thread:
    """Return whether the call may still be under way in a thread."""
    if effect.thread_of is None:
        return Thread(may_go_on=False)
    for found, report in await _reports(attempt, effect):
        if found.fence == effect.fence and report.attempt == effect.attempt:
            return Thread(may_go_on=False, ended_at=found.at)
    workers = await call_store(attempt.services.store.workers)
    return Thread(may_go_on=not attempt.services.is_gone(effect.thread_of, workers))


async def _reports(attempt: StepOwner, effect: Effect) -> list[tuple[Evidence, Report]]:
    evidence = await call_store(lambda: attempt.services.store.evidence(attempt.task.id, effect.effect_id))
    return [(one, Report.of(one)) for one in evidence]


# Reporting


async def returned(attempt: StepOwner, effect: Effect, value: object, returns: object) -> None:
    """Report that the call returned this value, after its attempt was over."""
    if inspect.isawaitable(value):  # a blocking function left the rest to the loop
        reporter = asyncio.current_task()
        try:
            value = await value
        except BaseException as error:  # noqa: BLE001 - it becomes evidence
            await _store(attempt, effect, _raised(effect, as_failure(error, reporter)))
            return
    try:
        report = Report(RETURNED, effect.attempt, result=to_json(value, returns, name="a late result"))
    except CodecError as error:
        report = Report(RETURNED, effect.attempt, error=storable(f"{value!r}: {error}", 1000))
    await _store(attempt, effect, report)


def when_over(
    attempt: StepOwner, call: asyncio.Task[Any], effect: Effect, returns: object, *, is_over: Callable[[], bool]
) -> None:
    """Report how a call ends that its attempt no longer waits for, unless it is cancelled.

    ``is_over`` returns whether the function has ended. In a thread it may outlive its timeout; then ``late`` reports.
    """

    def report_end(over: asyncio.Task[Any]) -> None:
        error = None if over.cancelled() else over.exception()
        if not over.cancelled() and is_over():
            _report(attempt, effect, returns, None if error else over.result(), error)

    call.add_done_callback(report_end)
    attempt.services.keep(call)


def late(attempt: StepOwner, effect: Effect, returns: object) -> Late:
    """Return a function that reports the end of an abandoned thread."""
    return lambda result, error: _report(attempt, effect, returns, result, error)


def _report(attempt: StepOwner, effect: Effect, returns: object, value: object, error: BaseException | None) -> None:
    if error is None:
        reporting = returned(attempt, effect, value, returns)
    elif attempt.intents.was_dispatched(effect):
        reporting = _store(attempt, effect, _raised(effect, error))
    else:
        return
    if not attempt.services.start(reporting):
        log.cannot_report(attempt.task, effect.step_key, "it ended after the store was closed")
        drop(value)


def _raised(effect: Effect, error: BaseException) -> Report:
    error = raised_by_code(error)
    return Report(RAISED, effect.attempt, error=storable(f"{type(error).__name__}: {error}", 1000))


async def _store(attempt: StepOwner, effect: Effect, report: Report) -> None:
    services, task = attempt.services, attempt.task
    evidence = Evidence(task_id=task.id, effect_id=effect.effect_id, fence=effect.fence, body=report.to_bytes())
    try:
        await attempt.add_evidence(evidence)
        log.reported_late(task, effect.step_key, report.outcome)
        if report.outcome == RETURNED:
            await _contradict(services, task.id, effect)
    except HoldfastError as error:
        log.cannot_report(task, effect.step_key, error)


async def _contradict(services: Services, task_id: str, reported: Effect) -> None:
    """Reopen an effect that was resolved on the assumption that this call had not happened."""
    while True:
        found = await call_store(lambda: services.store.effects(task_id=task_id, effect_id=reported.effect_id))
        task = await call_store(lambda: services.store.get(task_id))
        if not found or task is None:
            return  # pruned
        [now] = found
        is_another_call = (now.fence, now.attempt) != (reported.fence, reported.attempt)
        if now.state is _S.ARMED and is_another_call:
            await services.alarms.sleep(_LOOK_AGAIN)  # the call is being made again: its outcome is known soon
            continue
        if now.state not in _NOT_HAPPENED and not (now.state is _S.DONE and is_another_call):
            return
        if await _reopen(services, now, task):
            log.logger.warning("task %s: step %s happened after all; see hold.doubts()", task_id, reported.step_key)
            return


async def _reopen(services: Services, effect: Effect, task: Task) -> bool:
    doubtful = replace(effect, state=_S.IN_DOUBT, note="a call that seemed lost did happen; see the evidence")
    operations = [WriteEffect(doubtful)]
    if effect.state not in NOT_MADE:
        # It was given up, undone or done again: a person has to decide now. A call that was only not made is resolved
        # by the attempt that is about to make it, or by a person if there is none.
        operations.append(WriteEffect(replace(doubtful, state=_S.NEEDS_HUMAN)))
    reopen = Commit(
        task_id=task.id, guard=Expect(revision=task.revision), operations=tuple(operations), actor="late report"
    )
    [verdict] = await call_store(lambda: services.store.commit([reopen]))
    return verdict.applied
