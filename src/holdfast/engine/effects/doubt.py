"""Resolving an effect in doubt: wait until it has settled, read late reports, ask its reconcile, ask a person."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.engine.api.definition import is_async
from holdfast.engine.attempt.exits import as_failure
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.effects import late_evidence
from holdfast.engine.runtime import log
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.steps.call import DEFAULT_TIMEOUT, Call, StepLine, Terms
from holdfast.engine.steps.one_try import within
from holdfast.engine.steps.waits import pause_until
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.canonical import canonical, digest, parse
from holdfast.model.codec import decode
from holdfast.model.doubt import Absent, Decision, Happened, Outcome, Unknown
from holdfast.model.effect import Effect, EffectState
from holdfast.model.errors import CodecError, Conflict, NotFound, StepFailed
from holdfast.model.failure import Failure, raised_by_code, storable
from holdfast.model.operations import OpenApproval, UntilDecided, UntilTime, WriteEffect
from holdfast.model.payload import to_json
from holdfast.model.retry import Retry
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState

ASKING_THE_TOOL = Retry(max_attempts=5, initial=0.5, factor=3.0, max_delay=30.0, jitter="none")
"""A reconcile that raises is called again a few times before a person is asked: it only reads."""

UNDO = "undo"
"""The kind of step that undoes another."""

DOUBT = "doubt"
"""The kind of approval that asks a person about an effect."""

MOST_OPEN = 10_000
"""The number of open questions of one task that are searched for the one about an effect."""

ASKED_EARLY = "its process is gone, so reconcile was asked at once"
"""Part of the note of an effect whose call has not settled: reconcile did not find that it happened."""

NO_RECONCILE = "its step names no reconcile="
"""Part of the note of an effect that only a person can resolve."""

LOST = "its worker was lost before it could report"
"""The note of an effect whose worker died before it recorded the outcome of the call."""

_S = EffectState
_ABOUT_A_CALL = (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)


class UnclearStep(Protocol):
    """A ``once`` step whose outcome is not known."""

    @property
    def attempt(self) -> StepOwner:
        """The attempt it belongs to."""

    @property
    def call(self) -> Call:
        """What it calls."""

    @property
    def terms(self) -> Terms:
        """How it is reconciled, and undone."""

    @property
    def line(self) -> StepLine:
        """Its line in the journal."""

    @property
    def returns(self) -> Any:  # noqa: ANN401
        """The type of its result."""

    @property
    def effect(self) -> Effect | None:
        """Its effect."""

    def arguments_to_call_with(self) -> tuple[Any, ...]:
        """Return the arguments as they were recorded."""

    def forget_error(self) -> None:
        """Forget the error of the call: it does not count any more."""

    async def move(self, before: Effect, after: Effect, /) -> Effect:
        """Record what was found out; return the effect as it is then."""


async def find_out(step: UnclearStep) -> Effect:
    """Resolve an effect that was armed or in doubt. Return it as done, intended again, or as a person decided."""
    effect, attempt = step.effect, step.attempt
    assert effect is not None  # noqa: S101 - without one there is no doubt
    if effect.state in {_S.ARMED, _S.IN_DOUBT}:
        effect = await _look_early(step, effect)
    if effect.state is _S.IN_DOUBT:
        effect = await _until_settled(step, effect)
    if effect.state is _S.IN_DOUBT:
        effect = await _settle(step, effect)
    if effect.state is _S.NEEDS_HUMAN:
        line = step.line.written(attempt.task, StepState.PENDING, error=step.line.error)
        effect = await ask_person(attempt, effect, line.step, _decisions(step))
    return effect


async def _pause(step: UnclearStep, until: datetime) -> None:
    line = step.line.written(step.attempt.task, StepState.PENDING, error=step.line.error, retry_at=until)
    await pause_until(step.attempt, line.step, until)


# Before it has settled


async def _look_early(step: UnclearStep, effect: Effect) -> Effect:
    """Ask reconcile at once if the process that made the call is proven to be gone; note the answer.

    The end of a process is not the end of its call, which may still be under way at its receiver. So only Happened
    counts; otherwise reconcile is asked again when the call has settled.
    """
    outcome: Outcome | None = None
    if not _is_settled(step, effect) and await _is_caller_gone(step.attempt, effect):
        outcome = await late_evidence.happened(step.attempt, effect, step.returns)
        if outcome is None and step.terms.reconcile is not None:
            outcome = await _reconcile(step, effect, tries=1)
    if effect.state is _S.ARMED:  # by an attempt that died before it recorded the outcome
        # State and note in one Commit: a person may decide once it is in doubt, and a later note would overwrite that.
        effect = await step.move(effect, replace(effect, state=_S.IN_DOUBT, note=_lost(step, effect, outcome)))
    if effect.state is _S.IN_DOUBT and isinstance(outcome, Happened):
        return await _take_for_done(step, effect, outcome.result)
    return effect


def _is_settled(step: UnclearStep, effect: Effect) -> bool:
    return effect.settle_at is None or step.attempt.services.time.now() >= effect.settle_at


def _lost(step: UnclearStep, effect: Effect, outcome: Outcome | None) -> str:
    """Return the note that people read until the call has settled: its worker was lost."""
    if _is_settled(step, effect):
        return LOST
    match outcome:
        case Absent():
            return f"{LOST}; {ASKED_EARLY}: it did not happen so far"
        case Unknown(why):
            return storable(f"{LOST}; {ASKED_EARLY}: it does not know" + (f" ({why})" if why else ""), 1000)
        case None if step.terms.reconcile is None:
            return f"{LOST}; {NO_RECONCILE}"
    return LOST


async def _is_caller_gone(attempt: StepOwner, effect: Effect) -> bool:
    """Return whether the process of the worker that made the call is proven to be over."""
    history = await call_store(lambda: attempt.services.store.history(attempt.task.id))
    callers = {one.actor for one in history if one.fence == effect.fence and one.to_state is TaskState.RUNNING}
    workers = await call_store(attempt.services.store.workers)
    return bool(callers) and all(attempt.services.is_gone(caller, workers) for caller in callers)


async def _until_settled(step: UnclearStep, effect: Effect) -> Effect:
    """Wait until the call has settled, or until a person decides before that."""
    at, attempt = effect.settle_at, step.attempt
    if at is None:
        return effect

    async def look() -> Effect | None:
        standing = await read_again(attempt, effect)
        is_due = attempt.services.time.now() >= at
        return standing if is_due or standing.state is not effect.state else None

    line = step.line.written(attempt.task, StepState.PENDING, error=step.line.error, retry_at=at).step
    wait = UntilTime(key=line.key, at=at)
    standing = await attempt.residence.waiting_branches().park((wait,), line, (f"task:{attempt.task.id}",), look)
    if standing.state is not effect.state:
        step.forget_error()
    return standing


# When it has settled


async def _take_for_done(step: UnclearStep, effect: Effect, result: object) -> Effect:
    try:
        body = canonical(to_json(result, step.returns, name="the result that reconcile returned"))
    except CodecError as error:
        step.forget_error()
        return await step.move(effect, replace(effect, state=_S.NEEDS_HUMAN, note=storable(str(error), 1000)))
    return await step.move(effect, replace(effect, state=_S.DONE, result=body))


def _before_settling(effect: Effect) -> str:
    """Return the note of an effect without the parts that were only true until the call had settled."""
    return (effect.note or "").partition(f"; {ASKED_EARLY}")[0].partition(f"; {NO_RECONCILE}")[0]


async def _settle(step: UnclearStep, effect: Effect) -> Effect:
    match await _look(step, effect):
        case Happened(result):
            return await _take_for_done(step, effect, result)
        case Absent():
            return await step.move(effect, replace(effect, state=_S.INTENDED))
        case Unknown(why) if step.call.kind == UNDO:
            # A person is asked whether the step was undone, and the other steps do not wait for the answer.
            failure = Failure(type_name="in doubt", message=f"it is not known whether it happened: {why}")
            raise StepFailed(failure, step=step.call.key)
        case Unknown(why):
            step.forget_error()
            note = "; ".join(part for part in (_before_settling(effect), why) if part)
            return await step.move(effect, replace(effect, state=_S.NEEDS_HUMAN, note=storable(note, 1000)))


async def _look(step: UnclearStep, effect: Effect) -> Outcome:
    """Find out what happened: from late reports, then from the step's own reconcile."""
    reported = await late_evidence.happened(step.attempt, effect, step.returns)
    if reported is not None:
        return reported
    if (why := step.call.why_unfit()) is not None:
        return Unknown(why)  # its reconcile could not be called with these arguments, either
    if step.terms.reconcile is None:
        return Unknown(NO_RECONCILE)
    # Read this first: the thread may act, and end, while reconcile is under way.
    thread = await late_evidence.thread_of(step.attempt, effect)
    if thread.ended_at is not None:
        await _pause(step, thread.ended_at + timedelta(seconds=step.terms.settle))
    outcome = await _reconcile(step, effect)
    if isinstance(outcome, Absent) and thread.may_go_on:
        return Unknown(
            "it did not happen so far, but its function runs in a thread of a worker that may be alive, and a thread "
            "cannot be stopped"
        )
    return outcome


async def _reconcile(step: UnclearStep, effect: Effect, *, tries: int = ASKING_THE_TOOL.max_attempts) -> Outcome:
    attempt, services, branch = step.attempt, step.attempt.services, asyncio.current_task()
    failed = 0
    while True:
        await attempt.check()
        try:
            outcome = await _ask_tool(step, effect)
        except BaseException as error:  # noqa: BLE001 - a failed reconcile answers nothing
            raised = raised_by_code(as_failure(error, branch))
            failed += 1
            why = f"reconcile raised {type(raised).__name__}: {raised}"
            log.reconcile_failed(attempt.task, step.call.key, why)
            if failed >= tries:
                return Unknown(why)
            await services.alarms.sleep(ASKING_THE_TOOL.backoff(failed, 0.0))
        else:
            if isinstance(outcome, Happened | Absent | Unknown):
                return outcome
            return Unknown(f"reconcile returned {outcome!r}; it has to return Happened(...), Absent() or Unknown()")


async def _ask_tool(step: UnclearStep, effect: Effect) -> Any:  # noqa: ANN401
    function, call, attempt = step.terms.reconcile, step.call, step.attempt
    assert function is not None  # noqa: S101 - asked for only where there is one
    args = step.arguments_to_call_with()

    async def ask() -> Any:  # noqa: ANN401
        if is_async(function):
            return await function(effect.effect_id, *args)
        answer = await attempt.services.threads.run(function, effect.effect_id, *args)
        return await answer if inspect.isawaitable(answer) else answer

    seconds = DEFAULT_TIMEOUT if call.timeout is None else call.timeout
    with attempt.under_way.busy():  # the task must not be taken off its worker meanwhile
        return await within(attempt, call, seconds, attempt.services.time.now(), ask)


def _decisions(step: UnclearStep) -> tuple[Decision, ...]:
    return (*_ABOUT_A_CALL, Decision.COMPENSATE) if step.terms.compensate is not None else _ABOUT_A_CALL


async def ask_person(attempt: StepOwner, effect: Effect, waiting: Step, decisions: tuple[Decision, ...]) -> Effect:
    """Wait for a person's decision; return the effect as it is then. ``waiting`` is the pending line of the journal."""
    store = attempt.services.store
    open_one = await _open_question(attempt, effect)
    if open_one is None:
        standing = await read_again(attempt, effect)
        if standing.state is not effect.state:
            return standing  # the question was open when this attempt began, and has been decided since
        open_one = question_about(attempt, effect, decisions)
        try:
            # With the effect as known here: if a decision came meanwhile, the store refuses this needless question.
            await attempt.outbox.commit_surely(WriteEffect(effect), OpenApproval(open_one))
        except Conflict:
            return await read_again(attempt, effect)
        log.needs_human(attempt.task, effect)

    async def look() -> Approval | None:
        approval = await call_store(lambda: store.approval(open_one.id))
        if approval is None:
            raise NotFound("approval", open_one.id)
        return None if approval.state is ApprovalState.OPEN else approval

    waits = (UntilDecided(key=waiting.key, approval_id=open_one.id),)
    await attempt.residence.waiting_branches().park(waits, waiting, (f"task:{attempt.task.id}",), look)
    return await read_again(attempt, effect)


async def _open_question(attempt: StepOwner, effect: Effect) -> Approval | None:
    """Return the open question about this effect. A question that was closed with its task does not count."""
    listed = await call_store(
        lambda: attempt.services.store.approvals(task_id=attempt.task.id, states={ApprovalState.OPEN}, limit=MOST_OPEN)
    )
    return next((one for one in listed if effect_asked_about(one) == effect.effect_id), None)


def effect_asked_about(approval: Approval) -> str | None:
    """Return the id of the effect that a question is about; None for an approval of another kind."""
    return str(parse(approval.arguments_bytes)["effect_id"]) if approval.kind == DOUBT else None


def question_about(attempt: StepOwner, effect: Effect, decisions: tuple[Decision, ...]) -> Approval:
    """Return the question to a person: the call, its arguments, and the possible decisions."""
    about: dict[str, JsonValue] = {
        "effect_id": effect.effect_id,
        "step": effect.step_key,
        "arguments": arguments_for_people(effect),
        "decisions": [decision.value for decision in decisions],
    }
    try:
        body = canonical(about)
    except CodecError:  # too deep or too large for a question
        body = canonical({**about, "arguments": f"{len(effect.arguments)} bytes, not shown here"})
    return Approval(
        task_id=attempt.task.id,
        kind=DOUBT,
        step_key=effect.step_key,
        question=f"Did step {effect.step_key!r} of task {attempt.task.name!r} happen? {effect.note or ''}".strip(),
        arguments_bytes=body,
        arguments_hash=digest(body),
        requested_by="holdfast",
    )


def arguments_for_people(effect: Effect) -> JsonValue:
    """Return the journaled arguments as plain JSON."""
    if effect.arguments == b"null":
        return None
    decoded = decode(effect.arguments, name="arguments")
    return to_json(decoded, name="arguments")


async def read_again(attempt: StepOwner, effect: Effect) -> Effect:
    """Return the effect as it is stored now: a person or a late report may have changed it."""
    [found] = await call_store(
        lambda: attempt.services.store.effects(task_id=attempt.task.id, effect_id=effect.effect_id)
    )
    attempt.intents.effects[found.effect_id] = found
    return found
