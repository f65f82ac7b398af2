"""Evidence: what a worker learned of a call after its lease was over, and what such reports say.

A late result moves no state by itself: whoever clears up the doubt reads it first. Where the doubt was already cleared
up, and wrongly so, the report reopens it for a person.
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
from holdfast.engine.runtime.store_retry import insist
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
_SAID_IT_DID_NOT = NOT_MADE | {_S.ABANDONED, _S.COMPENSATED}
"""Standings that a late "it happened" contradicts."""

RETURNED, RAISED = "returned", "raised"

_LOOK_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one call, told late."""

    outcome: str
    """returned or raised."""
    attempt: int
    result: JsonValue = None
    error: str = ""
    """What it raised; or why what it returned could not be kept."""

    def to_bytes(self) -> bytes:
        """Return it as the body of a piece of evidence."""
        return canonical({"outcome": self.outcome, "attempt": self.attempt, "result": self.result, "error": self.error})

    @classmethod
    def of(cls, evidence: Evidence) -> Report:
        """Read a body; of one that somebody else wrote only what fits."""
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
    """Return the result of the call, if a late report says that it returned."""
    for _, report in await _reports(attempt, effect):
        if report.outcome == RETURNED:
            if report.error:
                return Unknown(f"it did happen, but what it returned cannot be kept: {report.error}")
            return Happened(from_json(report.result, returns, name="a reported result"))
    return None


async def has_returned_since(attempt: StepOwner, effect: Effect) -> bool:
    """Say whether a late report came after the effect was settled: whoever settled it knew of those before."""
    return any(
        report.outcome == RETURNED and (effect.updated_at is None or told.at is None or told.at > effect.updated_at)
        for told, report in await _reports(attempt, effect)
    )


@dataclass(frozen=True, slots=True)
class Thread:
    """What is known of the thread a call runs in: no timeout stops it."""

    may_go_on: bool
    ended_at: datetime | None = None
    """When that was told, if it was told."""


async def thread_of(attempt: StepOwner, effect: Effect) -> Thread:
    """Return whether the call may still be under way in a thread."""
    if effect.thread_of is None:
        return Thread(may_go_on=False)
    for told, report in await _reports(attempt, effect):
        if told.fence == effect.fence and report.attempt == effect.attempt:
            return Thread(may_go_on=False, ended_at=told.at)
    workers = await insist(attempt.services.store.workers)
    return Thread(may_go_on=not attempt.services.is_gone(effect.thread_of, workers))


async def _reports(attempt: StepOwner, effect: Effect) -> list[tuple[Evidence, Report]]:
    evidence = await insist(lambda: attempt.services.store.evidence(attempt.task.id, effect.effect_id))
    return [(one, Report.of(one)) for one in evidence]


# Telling


async def returned(attempt: StepOwner, effect: Effect, value: object, returns: object) -> None:
    """Report that the call returned this, after the attempt it was made for was over."""
    if inspect.isawaitable(value):  # a blocking function left the rest to the loop
        telling = asyncio.current_task()
        try:
            value = await value
        except BaseException as error:  # noqa: BLE001 - it becomes evidence
            await _tell(attempt, effect, _raised(effect, as_failure(error, telling)))
            return
    try:
        report = Report(RETURNED, effect.attempt, result=to_json(value, returns, name="a late result"))
    except CodecError as error:
        report = Report(RETURNED, effect.attempt, error=storable(f"{value!r}: {error}", 1000))
    await _tell(attempt, effect, report)


def when_over(
    attempt: StepOwner, call: asyncio.Task[Any], effect: Effect, returns: object, *, is_over: Callable[[], bool]
) -> None:
    """Report how a call ends that nobody waits for any more, unless it is stopped.

    ``is_over``: whether the function has come to its end. One in a thread outlives its timeout; ``late`` tells then.
    """

    def tell(over: asyncio.Task[Any]) -> None:
        error = None if over.cancelled() else over.exception()
        if not over.cancelled() and is_over():
            _report(attempt, effect, returns, None if error else over.result(), error)

    call.add_done_callback(tell)
    attempt.services.keep(call)


def late(attempt: StepOwner, effect: Effect, returns: object) -> Late:
    """Return what is to be told when an abandoned thread has come to its end."""
    return lambda result, error: _report(attempt, effect, returns, result, error)


def _report(attempt: StepOwner, effect: Effect, returns: object, value: object, error: BaseException | None) -> None:
    if error is None:
        telling = returned(attempt, effect, value, returns)
    elif attempt.intents.was_dispatched(effect):
        telling = _tell(attempt, effect, _raised(effect, error))
    else:
        return
    if not attempt.services.start(telling):
        log.cannot_report(attempt.task, effect.step_key, "it ended after the store was closed")
        drop(value)


def _raised(effect: Effect, error: BaseException) -> Report:
    error = raised_by_code(error)
    return Report(RAISED, effect.attempt, error=storable(f"{type(error).__name__}: {error}", 1000))


async def _tell(attempt: StepOwner, effect: Effect, report: Report) -> None:
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
    """Reopen what was settled on the assumption that this call had not happened."""
    while True:
        found = await insist(lambda: services.store.effects(task_id=task_id, effect_id=reported.effect_id))
        task = await insist(lambda: services.store.get(task_id))
        if not found or task is None:
            return  # pruned
        [now] = found
        is_another_call = (now.fence, now.attempt) != (reported.fence, reported.attempt)
        if now.state is _S.ARMED and is_another_call:
            await services.alarms.sleep(_LOOK_AGAIN)  # it is being made again: what that comes to is known soon
            continue
        if now.state not in _SAID_IT_DID_NOT and not (now.state is _S.DONE and is_another_call):
            return
        if await _reopen(services, now, task):
            log.logger.warning("task %s: step %s happened after all; see hold.doubts()", task_id, reported.step_key)
            return


async def _reopen(services: Services, effect: Effect, task: Task) -> bool:
    doubtful = replace(effect, state=_S.IN_DOUBT, note="a call that was taken for lost did happen; see the evidence")
    operations = [WriteEffect(doubtful)]
    if effect.state not in NOT_MADE:
        # Somebody decided otherwise, or it was done again. That is for a person. What was merely not made is cleared up
        # by whoever was about to make it, and by a person if that is nobody.
        operations.append(WriteEffect(replace(doubtful, state=_S.NEEDS_HUMAN)))
    reopen = Commit(
        task_id=task.id, guard=Expect(revision=task.revision), operations=tuple(operations), actor="late report"
    )
    [verdict] = await insist(lambda: services.store.commit([reopen]))
    return verdict.applied
