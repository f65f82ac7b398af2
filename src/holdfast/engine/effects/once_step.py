"""Doing a step that must never be done blindly twice: arm, check, dispatch, record.

    look up -> (done: replay) -> (in doubt: find out) -> ask leave -> arm -> last check -> call -> record

The armed intent, with the exact arguments, is durable before the call. Whatever happens then, somebody can see that the
call may have been made. Only a proof that nothing happened lets it be made again without asking anybody.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.engine.attempt.exits import as_failure
from holdfast.engine.attempt.scope import SCOPE
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.attempt.stop_reasons import Unwind, look_at
from holdfast.engine.effects import doubt, late_evidence
from holdfast.engine.effects.recorded_call import IN_DOUBT, look_up, unsettled_until
from holdfast.engine.steps import approval
from holdfast.engine.steps.call import (
    CURRENT,
    DEFAULT_TIMEOUT,
    Call,
    StepLine,
    Terms,
    arguments_of,
    check_arguments,
    describe,
)
from holdfast.engine.steps.one_try import after_failure, begin, failure_of, recordable, tries_of, within
from holdfast.engine.steps.waits import pause_until
from holdfast.model.canonical import canonical, digest, parse
from holdfast.model.codec import decode, encode
from holdfast.model.effect import NOT_MADE, Effect, EffectClass, EffectState
from holdfast.model.errors import CodecError, Conflict, EffectGivenUp, StepFailed, StoreError
from holdfast.model.failure import Failure, raised_by_code, storable
from holdfast.model.operations import ConsumeApproval, Operation, RequireUndo, WriteEffect
from holdfast.model.payload import from_json
from holdfast.model.proof import proves_absence
from holdfast.model.restore import restore
from holdfast.model.step import StepState

DISPATCH_WITHIN = 1.0
"""Seconds between the arming of an effect and the last moment at which it may be dispatched.

Short, because a take-over has to wait for its end. Should the store take longer to answer, it is armed again, for
longer.
"""

_S = EffectState
_OVER_FOR_GOOD = frozenset({_S.ABANDONED, _S.COMPENSATED})


class NotDispatched(Exception):
    """The last check did not pass: nothing was called. A signal, seen by nobody outside."""


class Made:
    """A call that was made and recorded."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        """Hold what it returned."""
        self.value: Any = value


async def run_once(attempt: StepOwner, call: Call, terms: Terms) -> Any:  # noqa: ANN401
    """Return the recorded result, or make the call if it certainly was not made, and record what became of it."""
    if attempt.over or attempt.stopping is not None:
        raise Unwind
    attempt.discovery.announce(call)
    try:
        return await OnceStep(attempt, call, terms).run()
    finally:
        attempt.pass_over(call.key)


class OnceStep:
    """One ``once`` step of one attempt."""

    def __init__(self, attempt: StepOwner, call: Call, terms: Terms) -> None:
        """Look up how it stands."""
        self.arguments = arguments_of(call)
        # What is written down, asked about and called is one and the same, whatever becomes of the caller's objects.
        call = replace(call, args=deepcopy(call.args), is_fixed=True)
        self.attempt, self.call, self.terms = attempt, call, terms
        self._known = describe(call.function)
        self.returns: Any = self._known.returns if call.returns is None else call.returns
        standing = look_up(attempt, call, terms, self.arguments)
        self.recorded, self.effect, self._error = standing.recorded, standing.effect, standing.error
        self._id = standing.effect_id
        self.line: StepLine = begin(attempt, call, self.recorded, digest(self.arguments))
        self.line.effect_id = self._id
        if self.recorded is not None and self.recorded.state is StepState.RUNNING:
            self.line.began = self.recorded.started_at  # when it was armed, which may have been by the step before it
        # It counts the calls, not the looks at it.
        self.line.attempts = 1 if self.recorded is None else self.recorded.attempts
        self._tries = () if self.recorded is None or self.recorded.undone_at is not None else tries_of(self.recorded)
        self._ended_by = () if self.recorded is None else failure_of(self.recorded).steps
        """The steps inside it that its last call failed by: the next call does them again."""
        self._patience = DISPATCH_WITHIN
        self._is_over = True
        """Whether the function has returned: one in a thread may outlive its timeout."""
        self._answered = False
        """Whether the function itself raised. A call that we ended says nothing, whatever its timeout is called."""

    # The run, as a sentence

    async def run(self) -> Any:  # noqa: ANN401
        """Go from standing to standing until the step has a result, or none ever will."""
        recorded = self.recorded
        if recorded is not None and recorded.state is StepState.FAILED:
            await self.attempt.discovery.let_branches_pass()
            raise StepFailed(failure_of(recorded), step=self.call.key)
        if recorded is not None and (recorded.undone_at is None or self.attempt.discovery.is_under_way):
            if recorded.state is StepState.COMPLETED:
                await self.attempt.take_turn(recorded)
                return decode(recorded.output or b"", self.returns, name=f"step {self.call.key!r}")
            if recorded.retry_at is not None and self._is_not_made:
                await pause_until(self.attempt, recorded, recorded.retry_at)
        while True:
            made = await self._go_on()
            if made is not None:
                return made.value

    @property
    def _is_not_made(self) -> bool:
        return self.effect is None or self.effect.state in NOT_MADE

    async def _go_on(self) -> Made | None:
        """Do what its standing asks for; the result, if that is known then."""
        effect = self.effect
        if effect is not None and effect.state is _S.DONE:
            return Made(await self._adopt(effect))
        await self.attempt.check()
        if effect is None or effect.state in NOT_MADE:
            return await self._make()
        if effect.state in _OVER_FOR_GOOD:
            await self._give_up(effect)
        elif effect.state is _S.COMPENSATING:
            self.effect = await self.attempt.undo_now(effect)
        else:
            self.effect = await doubt.find_out(self)
        return None

    async def _make(self) -> Made | None:
        until = unsettled_until(self.attempt, self.effect, self.call.key, digest(self.arguments))
        if until is not None:
            line = self.line.written(self.attempt.task, StepState.PENDING, error=self.line.error, retry_at=until)
            await pause_until(self.attempt, line.step, until)
        if self.effect is not None and await late_evidence.has_returned_since(self.attempt, self.effect):
            # It was found not to have happened, and then a late report came.
            await self._write(replace(self.effect, state=_S.IN_DOUBT, note="reported late: it did happen"))
            return None
        if self._error is not None:
            await self._fail(self._error)
            return None
        if self._needs_approval and (why := self.call.why_unfit()) is not None:
            await self._have_person_decide(why)
            return None
        approval_id = await self._obtain_leave()
        with self.attempt.under_way.busy():  # from here until its outcome is known the task stays on its worker
            await self.attempt.check()  # and has a slot: it may have come to rest while leave was obtained
            armed = await self._arm(approval_id)
            if armed is None:
                return None
            made = await self._try(armed)
        if not isinstance(made, Exception):
            return made
        await self._after_error(armed, made)
        return None

    @property
    def _needs_approval(self) -> bool:
        return self.terms.ask is not None or (self.effect is not None and self.effect.approval_id is not None)

    async def _have_person_decide(self, why: str) -> None:
        """Leave a call to a person that was approved and cannot be made as it was written down.

        It is not made in any other way. Where no approval is needed, the function is called, which says that it cannot.
        """
        attempt, standing = self.attempt, self.effect
        await approval.withdraw(attempt, self._id, why)
        operations: list[Operation] = [self.line.written(attempt.task, StepState.PENDING, error=self.line.error)]
        if standing is None:
            armed = arming(attempt, self.call, self._id, self.arguments, patience=0)
            standing = replace(armed, state=_S.INTENDED, dispatch_by=None, settle_at=None)
            operations.append(WriteEffect(standing))
            if standing.compensable and not attempt.outbox.must_undo:
                operations.append(RequireUndo(required=True))  # a person may say that it happened
        for state in (_S.IN_DOUBT, _S.NEEDS_HUMAN):
            standing = replace(standing, state=state, note=storable(f"it was not called: {why}", 1000))
            operations.append(WriteEffect(standing))
        try:
            await attempt.outbox.commit_surely(*operations)
        except Conflict:
            if self.effect is None:
                raise
            standing = await doubt.read_again(attempt, self.effect)
        self.effect = standing

    async def _obtain_leave(self) -> str | None:
        if self.terms.ask is None:
            return None
        return await approval.obtain(self.attempt, self.call.key, self._id, self.terms.ask, self.arguments)

    # Making the call

    async def _arm(self, approval_id: str | None) -> Effect | None:
        """Write down what is about to be called; return when that is durable. None: it does not stand as it did."""
        attempt, before = self.attempt, self.effect
        carried = attempt.intents.carried.pop(self._id, None)
        is_durable = carried is not None and attempt.intents.effects.get(self._id) is carried
        if carried is not None and is_durable and self._is_mine(carried):
            self.effect = carried
            return carried
        check_arguments(self.call, self._known)
        self.line.began = attempt.services.time.now()
        armed = replace(
            arming(attempt, self.call, self._id, self.arguments, patience=self._patience),
            attempt=1 if before is None else before.attempt + 1,
            approval_id=approval_id,
            thread_of=None if self._known.is_async else attempt.lease.worker_id,
        )
        self.line.attempts = armed.attempt
        try:
            await attempt.outbox.commit_surely(*self._intent(armed))
        except Conflict:
            if before is None or not await self._has_moved(before):
                raise
            return None
        self.effect = armed
        return armed

    def _intent(self, armed: Effect) -> list[Operation]:
        operations: list[Operation] = []
        if armed.approval_id is not None:
            operations.append(
                ConsumeApproval(approval_id=armed.approval_id, effect_id=self._id, arguments_hash=armed.arguments_hash)
            )
        operations += (
            self.line.written(self.attempt.task, StepState.RUNNING, error=self.line.error),
            WriteEffect(armed),
        )
        operations += self.attempt.under_way.reopening(self.call, self._ended_by)
        if armed.compensable and not self.attempt.outbox.must_undo:
            operations.append(RequireUndo(required=True))  # now: whether it happened may only be known too late
        return operations

    async def _has_moved(self, before: Effect) -> bool:
        """Look whether somebody else, such as a late report, has moved the effect since."""
        self.effect = await doubt.read_again(self.attempt, before)
        return self.effect.state is not before.state

    def _is_mine(self, carried: Effect) -> bool:
        """Say whether an intent that rode in an earlier Commit is this very call's."""
        wanted = arming(self.attempt, self.call, self._id, self.arguments, patience=0)
        return (
            carried.arguments_hash == wanted.arguments_hash
            and self.terms.ask is None
            and carried.compensable == wanted.compensable
            and carried.thread_of == (None if self._known.is_async else self.attempt.lease.worker_id)
            and _span(carried) >= _span(wanted)
        )

    async def _try(self, armed: Effect) -> Made | Exception | None:
        """Dispatch it and record the result, or return what it raised. None: it was not dispatched."""
        try:
            value = await self._dispatch(armed)
            output, value = recordable(self.attempt, self.call, value, self.returns)
        except NotDispatched:
            self._patience = min(self._patience * 2, self.attempt.lease.seconds)
            self.effect = replace(armed, state=_S.FAILED)
            return None
        except Exception as error:  # noqa: BLE001 - what it proves decides what it means
            return error
        now = self.attempt.services.time.now()
        done = replace(armed, state=_S.DONE)
        written = self.line.written(self.attempt.task, StepState.COMPLETED, output=output, finished_at=now)
        try:
            await self.attempt.outbox.commit_surely(written, WriteEffect(done), *self.call.consequences(value))
        except (Unwind, asyncio.CancelledError):
            if self.attempt.intents.effects.get(self._id) is not done:
                # The lease is over. What is known is worth knowing, but decides nothing.
                await late_evidence.returned(self.attempt, armed, value, self.returns)
            raise
        return Made(self.call.over_with(value))

    def arguments_to_call_with(self) -> tuple[Any, ...]:
        """Return the arguments as they were written down, whatever was done to those that were handed out before."""
        return self.call.args_to_call_with()

    async def _dispatch(self, armed: Effect) -> Any:  # noqa: ANN401
        """Make the call in an asyncio task of its own, which can outlive this attempt's interest in it."""
        attempt = self.attempt
        attempt.under_way.begin(self.line)
        job = asyncio.create_task(self._call(armed), name=f"holdfast-effect-{armed.effect_id}")
        job.add_done_callback(look_at)
        try:
            with attempt.under_way.sending():
                return await asyncio.shield(job)
        except asyncio.CancelledError:
            late_evidence.when_over(attempt, job, armed, self.returns, is_over=lambda: self._is_over)
            if not attempt.leaves_calls_running:
                job.cancel()
            raise
        finally:
            attempt.under_way.end(self.line)

    async def _call(self, armed: Effect) -> Any:  # noqa: ANN401
        attempt, call, job = self.attempt, self.call, asyncio.current_task()
        scope = attempt.under_way.enter(call, is_once=True)
        SCOPE.set(scope)
        CURRENT.set(lambda: armed.effect_id)
        named = {"effect_id": armed.effect_id} if self._known.takes_effect_id else {}
        args = self.arguments_to_call_with()
        self._answered = False  # what an earlier call said says nothing about this one

        def here() -> Any:  # noqa: ANN401
            try:
                self._last_check(armed)
                return call.function(*args, **named)
            finally:
                self._is_over = True

        async def invoke() -> Any:  # noqa: ANN401
            try:
                if self._known.is_async:
                    return await here()
                late = late_evidence.late(attempt, armed, self.returns)
                self._is_over = False  # from here on: a thread that has not begun yet cannot be stopped either
                value = await attempt.services.threads.run(here, late=late)
                return await value if inspect.isawaitable(value) else value
            except Exception:
                self._answered = True
                raise
            except BaseException as error:  # noqa: BLE001 - sorted out there
                failure = as_failure(error, job)
                self._answered = True
                raise failure from None

        seconds = DEFAULT_TIMEOUT if call.timeout is None else call.timeout
        try:
            return await within(attempt, call, seconds, attempt.services.time.now(), invoke)
        finally:
            if scope.end():
                await attempt.under_way.leave(scope)

    def _last_check(self, armed: Effect) -> None:
        """The last act before the call, with nothing awaited in between.

        A process that is frozen between this line and the first byte it sends cannot be caught by any check.
        """
        attempt = self.attempt
        if attempt.over or attempt.stopping is not None or armed.fence != attempt.task.fence:
            raise NotDispatched
        if SCOPE.get(attempt.scope).has_ended:
            raise NotDispatched  # of a try that is over: the next one makes the call
        if not attempt.lease.holds:
            raise NotDispatched
        if attempt.is_late:
            raise NotDispatched
        if armed.dispatch_by is None or attempt.services.time.now() >= armed.dispatch_by:
            raise NotDispatched
        try:
            attempt.services.store.check_place()
        except StoreError as error:  # where it is armed again, the worker hears why
            raise NotDispatched from error
        if not attempt.intents.dispatch(armed):
            raise NotDispatched

    # What became of it

    async def _after_error(self, armed: Effect, error: Exception) -> None:
        attempt = self.attempt
        if attempt.over or attempt.stopping is not None:
            raise Unwind  # an error of a call that was being stopped says nothing
        raised = raised_by_code(error)
        note = storable(f"{type(raised).__name__}: {raised}", 1000)
        author = getattr(attempt.definition.function, "__module__", None) or ""
        if self._answered and proves_absence(raised, self.terms.absent_on, author=author):
            self.effect = failed = replace(armed, state=_S.FAILED, note=note)
            self._tries = await after_failure(attempt, self.call, self.line, self._tries, error, WriteEffect(failed))
            return
        now = attempt.services.time.now()
        settled = now + timedelta(seconds=self.terms.settle)  # the call is over here, and is not sent any more
        failure = replace(Failure.of(error), tries=self._tries, reason=IN_DOUBT, traceback="")
        self._ended_by = failure.steps
        self._error, self.line.error = error, canonical(failure.to_json())
        await self._write(
            replace(
                armed,
                state=_S.IN_DOUBT,
                note=note,
                settle_at=min(armed.settle_at or settled, settled),
                thread_of=None if self._is_over else armed.thread_of,
            )
        )

    async def _fail(self, error: Exception) -> None:
        """It raised, and is found not to have happened: a failed try like any other."""
        self.forget_error()
        self._tries = await after_failure(self.attempt, self.call, self.line, self._tries, error)

    def forget_error(self) -> None:
        """From here on it does not count that the call raised: its outcome is known, or for a person to say."""
        self._error = None
        known = Failure(type_name="", message="", tries=self._tries, steps=self._ended_by)
        self.line.error = canonical(known.to_json()) if self._tries or self._ended_by else None

    async def _adopt(self, effect: Effect) -> Any:  # noqa: ANN401
        """It happened, as somebody else found out, or in an earlier round: record it as this step's result."""
        attempt, step = self.attempt, self.attempt.journal.by_effect(effect.effect_id)
        if step is not None and step.output is not None:
            output, value = step.output, decode(step.output, self.returns, name=f"step {self.call.key!r}")
        else:
            value = await self._told(effect)
            output = encode(value, as_type=self.returns, name=f"step {self.call.key!r}")
        if attempt.discovery.is_under_way:
            return value
        now = attempt.services.time.now()
        written = self.line.written(attempt.task, StepState.COMPLETED, output=output, finished_at=now)
        await attempt.outbox.commit_surely(written, *self.call.consequences(value))
        return self.call.over_with(value)

    async def _told(self, effect: Effect) -> Any:  # noqa: ANN401
        """Return the result that somebody else named: plain data becomes what the function would have returned."""
        name = f"result of step {self.call.key!r}"
        value = from_json(parse(effect.result or b"null"), self.returns, name=name)
        if self.call.told is not None:
            return await self.call.told(value)
        with suppress(CodecError):  # it does not fit: then it is what they say
            return restore(value, self.returns, name=name)
        return value

    async def _give_up(self, effect: Effect) -> None:
        how = "was undone" if effect.state is _S.COMPENSATED else "was given up"
        error = EffectGivenUp(f"the effect of step {self.call.key!r} {how}: {effect.note or 'by a person'}")
        failure = replace(Failure.of(error), traceback="", reason=str(error))
        body = canonical(failure.to_json())
        now = self.attempt.services.time.now()
        if effect.state is _S.COMPENSATED:
            self.line.undone_at = now  # should somebody bring it back, it is another effect
        await self.attempt.outbox.commit(
            self.line.written(self.attempt.task, StepState.FAILED, error=body, finished_at=now)
        )
        raise StepFailed(failure, step=self.call.key)

    async def _write(self, effect: Effect) -> None:
        """Record a new standing of the effect, and that the step waits for it to be cleared up."""
        waiting = self.line.written(self.attempt.task, StepState.PENDING, error=self.line.error)
        await self.attempt.outbox.commit_surely(waiting, WriteEffect(effect))
        self.effect = effect

    async def move(self, before: Effect, after: Effect) -> Effect:
        """Record what was found out; return how it stands then, should a person have decided faster.

        It is written as it is known here first: from where a person may have moved it, the new standing may be legal.
        To find out may have taken minutes, so it is looked at again right before: a doubt may follow any decision.
        """
        standing = await doubt.read_again(self.attempt, before)
        if standing.state is not before.state:
            return standing
        waiting = self.line.written(self.attempt.task, StepState.PENDING, error=self.line.error)
        try:
            await self.attempt.outbox.commit_surely(waiting, WriteEffect(before), WriteEffect(after))
        except Conflict:
            return await doubt.read_again(self.attempt, after)
        return after


def arming(attempt: StepOwner, call: Call, identifier: str, arguments: bytes, *, patience: float) -> Effect:
    """Return the intent of a call as it is written down right before it."""
    assert call.terms is not None  # noqa: S101 - asked for only of once steps
    dispatch_by = attempt.services.time.now() + timedelta(seconds=patience)
    timeout = DEFAULT_TIMEOUT if call.timeout is None else call.timeout
    return Effect(
        effect_id=identifier,
        step_key=call.key,
        effect_class=EffectClass.ONCE,
        state=_S.ARMED,
        round=attempt.task.round,
        fence=attempt.task.fence,
        arguments=arguments,
        arguments_hash=digest(arguments),
        dispatch_by=dispatch_by,
        settle_at=dispatch_by + timedelta(seconds=timeout + call.terms.settle),
        compensable=call.terms.compensate is not None,
    )


def _span(effect: Effect) -> timedelta:
    assert effect.settle_at is not None  # noqa: S101 - an armed effect has both
    assert effect.dispatch_by is not None  # noqa: S101
    return effect.settle_at - effect.dispatch_by
