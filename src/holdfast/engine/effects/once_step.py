"""Doing a step that must never be done blindly twice: arm, check, dispatch, record.

    look up -> (done: replay) -> (in doubt: find out) -> get approval -> arm -> last check -> call -> record

The armed intent, with the exact arguments, is durable before the call. So the store always shows that the call may have
been made. Only a proof that nothing happened allows another call without asking a person.
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
from holdfast.engine.effects.armed_intent import DISPATCH_WITHIN, arming, span
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
from holdfast.engine.steps.one_try import after_failure, begin, failure_of, recordable, restored, tries_of, within
from holdfast.engine.steps.permit import begin_try, close_limits
from holdfast.engine.steps.waits import pause_until
from holdfast.model.canonical import canonical, digest, parse
from holdfast.model.codec import encode
from holdfast.model.effect import NOT_MADE, Effect, EffectState
from holdfast.model.errors import CodecError, Conflict, EffectGivenUp, StepFailed, StoreError
from holdfast.model.failure import Failure, raised_by_code, storable
from holdfast.model.operations import ConsumeApproval, Operation, RequireUndo, WriteEffect
from holdfast.model.payload import from_json
from holdfast.model.proof import proves_absence
from holdfast.model.restore import restore
from holdfast.model.step import StepState

_S = EffectState
_OVER_FOR_GOOD = frozenset({_S.ABANDONED, _S.COMPENSATED})


class NotDispatched(Exception):
    """The last check did not pass: nothing was called. A signal for this module only."""


class Made:
    """A call that was made and recorded."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        """Hold what it returned."""
        self.value: Any = value


async def run_once(attempt: StepOwner, call: Call, terms: Terms) -> Any:  # noqa: ANN401
    """Return the recorded result; or make the call if it certainly was not made, and record its outcome."""
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
        """Look up its records."""
        self.arguments = arguments_of(call)
        # A copy: the record, the question and the call have the same arguments, even if the caller changes its objects.
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
            self.line.began = self.recorded.started_at  # when it was armed, perhaps by the step before it
        # The line counts the calls, not the attempts that only looked up the step.
        self.line.attempts = 1 if self.recorded is None else self.recorded.attempts
        self._tries = () if self.recorded is None or self.recorded.undone_at is not None else tries_of(self.recorded)
        self._ended_by = () if self.recorded is None else failure_of(self.recorded).steps
        """The steps inside it that made its last call fail: the next call does them again."""
        self._patience = DISPATCH_WITHIN
        self._is_over = True
        """Whether the function has returned: in a thread it may outlive its timeout."""
        self._answered = False
        """Whether the function itself raised. If the engine ended the call, its error proves nothing."""

    # The run, as a sentence

    async def run(self) -> Any:  # noqa: ANN401
        """Move the effect from state to state, until the step has a result or has failed for good."""
        recorded = self.recorded
        if recorded is not None and recorded.state is StepState.FAILED:
            await self.attempt.discovery.let_branches_pass()
            raise StepFailed(failure_of(recorded), step=self.call.key)
        if recorded is not None and (recorded.undone_at is None or self.attempt.discovery.is_under_way):
            if recorded.state is StepState.COMPLETED:
                await self.attempt.take_turn(recorded)
                return await restored(self.attempt, recorded.output or b"", self.returns, f"step {self.call.key!r}")
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
        """Do what the state of its effect requires; return the result, if it is known then."""
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
            # The call was found absent, and then a late report arrived.
            await self._write(replace(self.effect, state=_S.IN_DOUBT, note="reported late: it did happen"))
            return None
        if self._error is not None:
            await self._fail(self._error)
            return None
        if self._needs_approval and (why := self.call.why_unfit()) is not None:
            await self._ask_person_about(why)
            return None
        approval_id = await self._obtain_approval()
        if self.call.limits:
            await self._take_back_intent()
        await begin_try(self.attempt, self.call)
        try:
            with self.attempt.under_way.busy():  # the task stays on its worker until the outcome is known
                await self.attempt.check()  # it needs a slot again, if it rested while it waited for the approval
                armed = await self._arm(approval_id)
                if armed is None:
                    return None
                made = await self._try(armed)
        finally:
            self.call.end_permit()
        if not isinstance(made, Exception):
            return made
        await self._after_error(armed, made)
        return None

    @property
    def _needs_approval(self) -> bool:
        return self.terms.ask is not None or (self.effect is not None and self.effect.approval_id is not None)

    async def _ask_person_about(self, why: str) -> None:
        """Let a person decide about an approved call that cannot be made with the recorded arguments.

        It is not made in any other way. If no approval is needed, the function is called, and raises an error itself.
        """
        attempt, standing = self.attempt, self.effect
        await approval.withdraw(attempt, self._id, why)
        operations: list[Operation] = [self.line.written(attempt.task, StepState.PENDING, error=self.line.error)]
        if standing is None:
            armed = arming(attempt, self.call, self._id, self.arguments, patience=0)
            standing = replace(armed, state=_S.INTENDED, dispatch_by=None, settle_at=None)
            operations.append(WriteEffect(standing))
            if standing.compensable and not attempt.outbox.must_undo:
                operations.append(RequireUndo(required=True))  # a person may decide that it happened
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

    async def _obtain_approval(self) -> str | None:
        if self.terms.ask is None:
            return None
        return await approval.obtain(self.attempt, self.call.key, self._id, self.terms.ask, self.arguments)

    # Making the call

    async def _take_back_intent(self) -> None:
        """Take back an intent that the step before has armed: the call has to wait for its permit first."""
        carried = self.attempt.intents.carried.pop(self._id, None)
        if carried is not None and self.attempt.intents.effects.get(self._id) is carried:
            await self._write(replace(carried, state=_S.FAILED, note="the call was not made"))

    async def _arm(self, approval_id: str | None) -> Effect | None:
        """Make the intent of the call durable and return it. None: the effect was changed meanwhile."""
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
            operations.append(RequireUndo(required=True))  # now: when the outcome is known, it may be too late
        return operations

    async def _has_moved(self, before: Effect) -> bool:
        """Return whether a person or a late report has changed the state of the effect since."""
        self.effect = await doubt.read_again(self.attempt, before)
        return self.effect.state is not before.state

    def _is_mine(self, carried: Effect) -> bool:
        """Return whether an intent from the Commit of an earlier step belongs to exactly this call."""
        wanted = arming(self.attempt, self.call, self._id, self.arguments, patience=0)
        return (
            carried.arguments_hash == wanted.arguments_hash
            and self.terms.ask is None
            and carried.compensable == wanted.compensable
            and carried.thread_of == (None if self._known.is_async else self.attempt.lease.worker_id)
            and span(carried) >= span(wanted)
        )

    async def _try(self, armed: Effect) -> Made | Exception | None:
        """Dispatch the call and record its result, or return what it raised. None: it was not dispatched."""
        try:
            value = await self._dispatch(armed)
            result = await recordable(self.attempt, self.call, value, self.returns)
        except NotDispatched:
            self._patience = min(self._patience * 2, self.attempt.lease.seconds)
            self.effect = replace(armed, state=_S.FAILED)
            return None
        except Exception as error:  # noqa: BLE001 - the caller decides what the error proves
            return error
        now = self.attempt.services.time.now()
        done = replace(armed, state=_S.DONE)
        written = self.line.written(self.attempt.task, StepState.COMPLETED, output=result.output, finished_at=now)
        try:
            await self.attempt.outbox.commit_surely(written, WriteEffect(done), *self.call.consequences(result.value))
        except (Unwind, asyncio.CancelledError):
            if self.attempt.intents.effects.get(self._id) is not done:
                # The lease is over. The result is stored as evidence, but changes no state.
                await late_evidence.returned(self.attempt, armed, result.value, self.returns)
            raise
        return Made(result.returned(self.call))

    def arguments_to_call_with(self) -> tuple[Any, ...]:
        """Return the arguments as they were recorded, even if an earlier call changed its copy."""
        return self.call.args_to_call_with()

    async def _dispatch(self, armed: Effect) -> Any:  # noqa: ANN401
        """Make the call in an asyncio task of its own, which can outlive this attempt."""
        attempt = self.attempt
        attempt.under_way.begin(self.line)
        job = asyncio.create_task(self._call(armed), name=f"holdfast-effect-{armed.effect_id}")
        job.add_done_callback(look_at)
        if (permit := self.call.permit) is not None:
            permit.use()
            job.add_done_callback(lambda _: permit.unuse())
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
        self._answered = False  # the answer of an earlier call is not the answer of this one

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
                self._is_over = False  # already here: a thread cannot be stopped, even before it begins
                function = here if call.permit is None else call.permit.in_thread(here)
                value = await attempt.services.threads.run(function, late=late)
                return await value if inspect.isawaitable(value) else value
            except Exception:
                self._answered = True
                raise
            except BaseException as error:  # noqa: BLE001 - as_failure decides what it is
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
        """Check that the call may be made: the last act before the call, without an await in between.

        No check can catch a process that is frozen between this line and the first byte that it sends.
        """
        attempt = self.attempt
        if attempt.over or attempt.stopping is not None or armed.fence != attempt.task.fence:
            raise NotDispatched
        if SCOPE.get(attempt.scope).has_ended:
            raise NotDispatched  # the try around it is over: the next try makes the call
        if not attempt.lease.holds:
            raise NotDispatched
        if self.call.permit is not None and not attempt.services.permits.note_use(self.call.permit):
            raise NotDispatched
        if attempt.is_late:
            raise NotDispatched
        if armed.dispatch_by is None or attempt.services.time.now() >= armed.dispatch_by:
            raise NotDispatched
        try:
            attempt.services.store.check_place()
        except StoreError as error:  # when it is armed again, the store raises the same error to the worker
            raise NotDispatched from error
        if not attempt.intents.dispatch(armed):
            raise NotDispatched

    # The outcome

    async def _after_error(self, armed: Effect, error: Exception) -> None:
        attempt = self.attempt
        if attempt.over or attempt.stopping is not None:
            raise Unwind  # the error of a call that was being stopped has no meaning
        await close_limits(attempt, self.call, error)
        raised = raised_by_code(error)
        note = storable(f"{type(raised).__name__}: {raised}", 1000)
        author = getattr(attempt.definition.function, "__module__", None) or ""
        if self._answered and proves_absence(raised, self.terms.absent_on, author=author):
            self.effect = failed = replace(armed, state=_S.FAILED, note=note)
            self._tries = await after_failure(attempt, self.call, self.line, self._tries, error, WriteEffect(failed))
            return
        now = attempt.services.time.now()
        settled = now + timedelta(seconds=self.terms.settle)  # the call is over in this process: nothing more is sent
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
        """Record a failed try: the call raised, and was found not to have happened."""
        self.forget_error()
        self._tries = await after_failure(self.attempt, self.call, self.line, self._tries, error)

    def forget_error(self) -> None:
        """Forget the error of the call: its outcome is known, or a person decides it."""
        self._error = None
        known = Failure(type_name="", message="", tries=self._tries, steps=self._ended_by)
        self.line.error = canonical(known.to_json()) if self._tries or self._ended_by else None

    async def _adopt(self, effect: Effect) -> Any:  # noqa: ANN401
        """Record a call that happened, found out by others or made in an earlier round, as this step's result."""
        attempt, step = self.attempt, self.attempt.journal.by_effect(effect.effect_id)
        if step is not None and step.output is not None:
            output = step.output
            value = await restored(attempt, output, self.returns, f"step {self.call.key!r}")
        else:
            value = await self._given_result(effect)
            output = encode(value, as_type=self.returns, name=f"step {self.call.key!r}")
        if attempt.discovery.is_under_way:
            return value
        now = attempt.services.time.now()
        written = self.line.written(attempt.task, StepState.COMPLETED, output=output, finished_at=now)
        await attempt.outbox.commit_surely(written, *self.call.consequences(value))
        return self.call.recorded_result(value)

    async def _given_result(self, effect: Effect) -> Any:  # noqa: ANN401
        """Return a result that a reconcile or a person gave, converted to what the function would have returned."""
        name = f"result of step {self.call.key!r}"
        value = from_json(parse(effect.result or b"null"), self.returns, name=name)
        if self.call.accept_result is not None:
            return await self.call.accept_result(value)
        with suppress(CodecError):  # if it does not fit the type, it is returned as it was given
            return restore(value, self.returns, name=name)
        return value

    async def _give_up(self, effect: Effect) -> None:
        how = "was undone" if effect.state is _S.COMPENSATED else "was given up"
        error = EffectGivenUp(f"the effect of step {self.call.key!r} {how}: {effect.note or 'by a person'}")
        failure = replace(Failure.of(error), traceback="", reason=str(error))
        body = canonical(failure.to_json())
        now = self.attempt.services.time.now()
        if effect.state is _S.COMPENSATED:
            self.line.undone_at = now  # if the task is revived and does it again, that is another effect
        await self.attempt.outbox.commit(
            self.line.written(self.attempt.task, StepState.FAILED, error=body, finished_at=now)
        )
        raise StepFailed(failure, step=self.call.key)

    async def _write(self, effect: Effect) -> None:
        """Record a new state of the effect, and that the step waits until the doubt is resolved."""
        waiting = self.line.written(self.attempt.task, StepState.PENDING, error=self.line.error)
        await self.attempt.outbox.commit_surely(waiting, WriteEffect(effect))
        self.effect = effect

    async def move(self, before: Effect, after: Effect) -> Effect:
        """Record what was found out; return the effect as it is then. A person may have decided first.

        Finding out may have taken minutes, so the effect is read again just before: any decision may have come. The
        Commit first writes the effect as known here: after a person's decision the store then refuses it, even if the
        new state would be legal.
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
