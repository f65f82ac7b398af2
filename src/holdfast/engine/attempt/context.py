"""ctx: what a task function sees. Its calls are durable; the code between them runs again on a resume."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from os import getpid
from types import FunctionType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from holdfast.engine.api.definition import Bound, TaskDefinition, check_retry
from holdfast.engine.api.new_task import new_task
from holdfast.engine.api.signatures import (
    TRANSACTION_OPTIONS,
    A,
    B,
    C,
    ChildOptions,
    D,
    Later,
    StepOptions,
    TakesId0,
    TakesId1,
    TakesId2,
    TakesId3,
    TakesId4,
    Task0,
    Task1,
    Task2,
    Task3,
    Task4,
    refuse_for_function,
    refuse_for_task,
)
from holdfast.engine.attempt.journal import RESERVED, VERIFY
from holdfast.engine.attempt.scope import INSIDE, SCOPE, Scope, as_branch, check_part
from holdfast.engine.attempt.state_view import LOOK, PATCH, Viewer, patch_state, refresh_state
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.attempt.stuck_code import dead_end
from holdfast.engine.effects.carried_intents import Intent, carry
from holdfast.engine.manage.state import check_patch
from holdfast.engine.runtime.where import running_loop
from holdfast.engine.steps import children, waits
from holdfast.engine.steps.approval import QUESTION, decision
from holdfast.engine.steps.call import ONE_TRY, Call, Compensation, Terms, terms_of
from holdfast.engine.steps.charge import CHARGE, amounts_of, charge
from holdfast.engine.steps.children import Parent
from holdfast.engine.steps.step import perform
from holdfast.engine.steps.transaction import TIMEOUT, run_transaction, transaction_call, undo_terms
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Ask, Decided
from holdfast.model.canonical import canonical
from holdfast.model.checks import check_name
from holdfast.model.deadline import as_seconds
from holdfast.model.effect import EffectClass
from holdfast.model.errors import HoldfastError, InvalidValue
from holdfast.model.flow_limit import check_keys
from holdfast.model.labels import merged_labels
from holdfast.model.patch import StatePatch
from holdfast.model.retry import ErrorKind, Retry
from holdfast.model.schedule import tick_of
from holdfast.model.task import FLAT_KEYS, JsonValue, NewTask, Task
from holdfast.store.transaction import OPEN_HERE, refuse_inside

P = ParamSpec("P")
R = TypeVar("R")
_LONGEST_NAME = 160
_NO_TERMS = (None,) * 5


class ContextOwner(Parent, Viewer, Protocol):
    """The attempt behind a ``ctx``."""

    @property
    def is_stopped(self) -> bool:
        """Whether its code must stop: no call of ``ctx`` does anything more."""

    def is_at_home(self, loop: asyncio.AbstractEventLoop | None, /) -> bool:
        """Return whether code that runs on this loop may use ``ctx``. None: the code runs on no loop."""


class Context:
    """The task as its own code sees it."""

    __slots__ = ("_attempt", "_home", "_prefix")

    def __init__(self, attempt: ContextOwner, *, prefix: str = "", home: Scope | None = None) -> None:
        """Made by the engine for each attempt. ``prefix`` separates the keys of a verifier, or of a machine's visit.

        ``home`` is the scope it was made in, if that is not the task's own code.
        """
        self._attempt = attempt
        self._prefix = prefix
        self._home = attempt.scope if home is None else home

    # Facts

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._attempt.task.id

    @property
    def task(self) -> Task:
        """The task's record, as it was when this attempt began."""
        return self._attempt.task

    @property
    def tick(self) -> datetime | None:
        """The tick of its schedule (``task.schedule``) for which it was submitted; None if there is none."""
        return tick_of(self.task.schedule, self.task.key)

    @property
    def attempt(self) -> int:
        """Which try at the task this is, counted from 1; take-overs and suspensions do not count."""
        return self._attempt.task.attempts + 1

    @property
    def feedback(self) -> str | None:
        """Why the last round was rejected."""
        return self._attempt.task.feedback

    @property
    def deadline(self) -> datetime | None:
        """When the whole task must be over."""
        return self._attempt.task.deadline

    # Steps

    @overload
    def step(self, name: str, function: Callable[[], Later[R]], /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(self, name: str, function: Callable[[], R], /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(self, name: str, function: Callable[[A], Later[R]], a: A, /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(self, name: str, function: Callable[[A], R], a: A, /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: Callable[[A, B], Later[R]], a: A, b: B, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(self, name: str, function: Callable[[A, B], R], a: A, b: B, /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: Callable[[A, B, C], Later[R]], a: A, b: B, c: C, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: Callable[[A, B, C], R], a: A, b: B, c: C, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: Callable[[A, B, C, D], Later[R]], a: A, b: B, c: C, d: D, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: Callable[[A, B, C, D], R], a: A, b: B, c: C, d: D, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(self, name: str, function: TakesId0[Later[R]], /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(self, name: str, function: TakesId0[R], /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(self, name: str, function: TakesId1[A, Later[R]], a: A, /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(self, name: str, function: TakesId1[A, R], a: A, /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: TakesId2[A, B, Later[R]], a: A, b: B, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(self, name: str, function: TakesId2[A, B, R], a: A, b: B, /, **o: Unpack[StepOptions]) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: TakesId3[A, B, C, Later[R]], a: A, b: B, c: C, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: TakesId3[A, B, C, R], a: A, b: B, c: C, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: TakesId4[A, B, C, D, Later[R]], a: A, b: B, c: C, d: D, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(
        self, name: str, function: TakesId4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **o: Unpack[StepOptions]
    ) -> Later[R]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Later[R]],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **o: Unpack[StepOptions],
    ) -> Later[R]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., R],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **o: Unpack[StepOptions],
    ) -> Later[R]: ...

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        effect: EffectClass | str | None = None,
        reconcile: Callable[..., Any] | None = None,
        settle: float | timedelta | None = None,
        absent_on: tuple[ErrorKind, ...] | ErrorKind = (),
        compensate: Callable[..., Any] | Compensation | None = None,
        approval: Ask | None = None,
        arms: Callable[[Any], Sequence[Intent]] | None = None,
        returns: Any = None,
        repeat: bool = False,
        limits: Sequence[str] = (),
        **unknown: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Do ``function(*args)`` once: ``await ctx.step("collect", collect, service)``.

        If the journal has the step as completed, its result is returned and nothing runs. Otherwise the function runs,
        and its result is durable before the next line of the task's code. If the process dies in between, the function
        runs again. So it must be harmless to run it twice, or it must use its ``effect_id`` as an idempotency key (a
        parameter of that name is filled in).

        ``holdfast.engine.attempt.journal`` explains key and name. ``retry`` tries the step again; by default, a failed
        step fails the attempt, and the task's own policy retries it. ``timeout`` (seconds or timedelta) limits each
        try. ``returns`` is the result's type if the function has no annotation. A step that gives up raises StepFailed.

        ``effect`` defines how often the call may be made: "idempotent" (the default) as above; "pure" likewise, without
        any harm; "once" is never repeated blindly. For "once", the intent is durable before the call is made. After a
        failure that leaves the outcome unknown, ``reconcile(effect_id, *args)`` finds it out, ``settle`` seconds after
        the end of the call; otherwise a person decides. ``absent_on`` names errors that prove that nothing happened.
        ``repeat`` does the step again in each round. docs/effects.md describes all of it.

        ``compensate(result, *args)`` undoes the step if the task fails or is cancelled later. With ``approval``, a
        person has to approve these exact arguments first. ``arms`` takes the result and names ``once`` steps that
        follow at once: their intents are written in the same Commit as this result.

        ``limits`` are keys of limits that were set with ``hold.limit``: each try waits until every one of them has a
        permit, without a slot. A limit with ``concurrency`` gives the step a timeout of five minutes, if it has none.
        """
        refuse_for_function("ctx.step", function, unknown, StepOptions.__annotations__)
        if not callable(function):
            raise InvalidValue(
                f"step {name!r} needs a function to call, and its arguments after it; {function!r} is not a function. "
                'Write ctx.step("name", fetch, url), not ctx.step("name", fetch(url))'
            )
        place = self.place()
        call = Call(
            self._allot(place, name, key),
            function,
            args,
            ONE_TRY if retry is None else check_retry(retry),
            None if timeout is None else as_seconds(timeout, what=f"the timeout of step {name!r}"),
            returns,
            name=name,
        )
        if limits:
            call.limits = check_keys(limits)
        named = (effect, reconcile, settle, compensate, approval)
        has_terms = named != _NO_TERMS or absent_on != () or repeat
        if has_terms or type(function) is not FunctionType:
            call.terms = terms_of(
                name,
                function,
                effect=effect,
                reconcile=reconcile,
                settle=settle,
                compensate=compensate,
                absent_on=absent_on,
                repeat=repeat,
                approval=approval,
            )
            if call.terms is not None:
                self._check_terms(place, name, call.terms)
        if arms is not None:
            call.arms = partial(carry, self._attempt, place.prefix, arms)
        return place.run(perform(self._attempt, call))

    def _check_terms(self, place: CallPlace, name: str, terms: Terms) -> None:
        if terms.compensate is not None:
            if self._prefix.startswith(VERIFY):
                raise InvalidValue(
                    f"step {name!r} of a verifier cannot have compensate=: the steps of a verifier are never undone"
                )
            place.refuse_in_once(f"step {name!r} with compensate=")
        if terms.ask is not None:
            place.refuse_in_once(f"step {name!r} with approval=")

    @overload
    def transaction(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, R]],
        *args: Any,  # noqa: ANN401
        key: str | None = None,
        timeout: float | timedelta = TIMEOUT,
        compensate: Callable[..., Any] | Compensation | None = None,
        returns: Any = None,  # noqa: ANN401
        repeat: bool = False,
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def transaction(
        self,
        name: str,
        function: Callable[..., R],
        *args: Any,  # noqa: ANN401
        key: str | None = None,
        timeout: float | timedelta = TIMEOUT,
        compensate: Callable[..., Any] | Compensation | None = None,
        returns: Any = None,  # noqa: ANN401
        repeat: bool = False,
    ) -> Coroutine[Any, Any, R]: ...

    def transaction(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        timeout: float | timedelta = TIMEOUT,
        compensate: Callable[..., Any] | Compensation | None = None,
        returns: Any = None,
        repeat: bool = False,
        **unknown: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Do ``function(tx, *args)`` exactly once: ``await ctx.transaction("book-seat", book, seat)``.

        Its ``tx.execute`` statements, in the database that also holds the task, and its line in the journal are one
        transaction: after a crash, either both are there or neither is. If the journal has the line, its result is
        returned and nothing runs. An async function gets a Transaction; any other runs in a thread, with a
        SyncTransaction.

        The function may be called again if nothing was written, so it must do nothing but ``tx.execute`` and
        ``tx.submit``, which submits an independent task. The transaction stays open for ``timeout`` at most (seconds or
        timedelta). Key, name, ``returns`` and errors are as for a step. It is not done again in a new round, unless
        ``repeat`` is True.

        ``compensate(tx, result, *args)`` undoes it if the task fails or is cancelled later. That is a transaction too:
        exactly once. A Compensation runs like that of a step, without a transaction: ``function(result, *args)``.
        """
        refuse_for_function("ctx.transaction", function, unknown, TRANSACTION_OPTIONS)
        if not callable(function):
            raise InvalidValue(
                f"transaction {name!r} needs a function to call, and its arguments after it; {function!r} is not a "
                'function. Write ctx.transaction("name", book, seat), not ctx.transaction("name", book(seat))'
            )
        seconds = as_seconds(timeout, what=f"the timeout of transaction {name!r}")
        place = self.place()
        terms = undo_terms(name, compensate)
        if terms is not None:
            self._check_terms(place, name, terms)
        own = self._allot(place, name, key)
        call = transaction_call(own, function, args, name=name, timeout=seconds, returns=returns, terms=terms)
        return place.run(run_transaction(self._attempt, call, repeat=repeat))

    # People

    def approval(
        self,
        question: str,
        *,
        risk: str | None = None,
        details: JsonValue = None,
        deciders: Sequence[str] = (),
        expires: float | timedelta | None = None,
        default: str = "rejected",
        policy: str | None = None,
        requested_by: str | None = None,
        key: str | None = None,
    ) -> Coroutine[Any, Any, Decided]:
        """Wait, without holding a worker, until a person approves; return the decision. Raises Rejected otherwise.

        ``details`` is what the person approves. If the code asks about other details after a restart, the approval is
        void and the person is asked again. ``deciders`` names who may decide. ``expires`` is the time they have;
        ``default`` is the decision after that: "rejected" or "approved". Decide with ``hold.approve`` and
        ``hold.reject``.
        """
        ask = Ask(question, risk, deciders, expires, default, policy, requested_by)
        arguments = canonical(details, name="details")
        place = self._waiting_place("ctx.approval")
        return place.run(decision(self._attempt, self._allot(place, "approval", key), ask, arguments))

    def ask(
        self,
        question: str,
        *,
        details: JsonValue = None,
        deciders: Sequence[str] = (),
        expires: float | timedelta | None = None,
        requested_by: str | None = None,
        key: str | None = None,
    ) -> Coroutine[Any, Any, JsonValue]:
        """Ask an open question and return the answer that a person gives with ``hold.answer``.

        Raises Rejected if the person refuses, or if the question expires without an answer.
        """
        ask = Ask(question, None, deciders, expires, requested_by=requested_by)
        place = self._waiting_place("ctx.ask")
        return place.run(self._ask(self._allot(place, "question", key), ask, canonical(details, name="details")))

    async def _ask(self, key: str, ask: Ask, arguments: bytes) -> JsonValue:
        return (await decision(self._attempt, key, ask, arguments, kind=QUESTION)).answer

    # The AgentState

    @property
    def state(self) -> AgentState:
        """The task's AgentState, as this code has seen it: a replay sees the same state at the same place.

        It is empty until the first patch. It holds the patches of this code. It also holds patches of others: those
        made before this code first read the state, before its own last patch, or before ``refresh_state``. Concurrent
        branches should use what their own ``patch`` returned.
        """
        self.place()
        return self._attempt.view.look(self._prefix)

    def patch(self, patch: StatePatch, *, reason: str = "", key: str | None = None) -> Coroutine[Any, Any, AgentState]:
        """Change the task's AgentState, once, and return it: ``await ctx.patch(StatePatch(add_questions=("Why?",)))``.

        A replay, a retry of the step around it and the next worker do not apply it again; a new round does. Facts get
        the time and the current step of the plan; artifacts are linked to the task. Raises InvalidValue if the patch
        does not fit the state, or is too large. Concurrent branches each need a ``key``.
        """
        check_patch(patch, reason)
        place = self.place()
        return place.run(patch_state(self._attempt, self._allot_own(place, PATCH, key), patch, reason=reason))

    def refresh_state(self, *, key: str | None = None) -> Coroutine[Any, Any, AgentState]:
        """Read the newest patches of others, and return the state; from then on ``state`` includes them."""
        place = self.place()
        return place.run(refresh_state(self._attempt, self._allot_own(place, LOOK, key)))

    def charge(
        self,
        *,
        steps: int = 0,
        llm_tokens: int = 0,
        cost: Decimal | float = 0,
        key: str | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Count something against the task's budget, once: ``await ctx.charge(steps=1)`` before each of your steps.

        Raises BudgetExceeded, and counts nothing, if that would pass a limit of the task or of a task above it, or if
        the wall time is spent. The budget of a plain task counts these charges and its wall time.
        """
        amounts = amounts_of(steps=steps, llm_tokens=llm_tokens, cost=cost)
        place = self.place()
        return place.run(charge(self._attempt, self._allot_own(place, CHARGE, key), amounts))

    # Waits

    def sleep(self, duration: float | timedelta, *, key: str | None = None) -> Coroutine[Any, Any, None]:
        """Wait for a time. A long sleep holds no worker, and the time counts on through restarts."""
        seconds = as_seconds(duration, what="a sleep")
        place = self._waiting_place("ctx.sleep")
        return place.run(waits.sleep(self._attempt, self._allot(place, "sleep", key), seconds))

    def wait_event(
        self,
        channel: str,
        *,
        timeout: float | timedelta | None = None,
        earlier: bool = False,
        key: str | None = None,
    ) -> Coroutine[Any, Any, JsonValue]:
        """Wait for the next event on a channel and return its payload, without holding a worker.

        A task sees the events emitted since its submit, in order, each once, also those emitted before the wait began.
        With ``earlier`` it also sees those from before its submit. After ``timeout`` it raises DeadlineExceeded.
        """
        check_name("channel", channel)
        seconds = None if timeout is None else as_seconds(timeout, what="the timeout of a wait")
        place = self._waiting_place("ctx.wait_event")
        own = self._allot(place, f"event:{plain(channel)}"[:_LONGEST_NAME], key)
        return place.run(waits.wait_event(self._attempt, own, channel, timeout=seconds, earlier=earlier))

    @overload
    def submit(self, task: Bound[R], **options: Unpack[ChildOptions]) -> Later[Child[R]]: ...
    @overload
    def submit(self, task: str, *args: object, **options: Unpack[ChildOptions]) -> Later[Child[Any]]: ...
    @overload
    def submit(self, task: Task0[R], /, **options: Unpack[ChildOptions]) -> Later[Child[R]]: ...
    @overload
    def submit(self, task: Task1[A, R], a: A, /, **options: Unpack[ChildOptions]) -> Later[Child[R]]: ...
    @overload
    def submit(self, task: Task2[A, B, R], a: A, b: B, /, **options: Unpack[ChildOptions]) -> Later[Child[R]]: ...
    @overload
    def submit(
        self, task: Task3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[ChildOptions]
    ) -> Later[Child[R]]: ...
    @overload
    def submit(
        self, task: Task4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[ChildOptions]
    ) -> Later[Child[R]]: ...
    @overload
    def submit(
        self,
        task: TaskDefinition[..., R],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **options: Unpack[ChildOptions],
    ) -> Later[Child[R]]: ...

    def submit(
        self,
        task: Any,
        *args: Any,
        key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        deadline: float | timedelta | datetime | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        labels: Mapping[str, str] | None = None,
        limits: Sequence[str] = (),
        **unknown: Any,
    ) -> Coroutine[Any, Any, Child[Any]]:
        """Submit a child task, once, and return a handle: ``await child.result()`` waits for it.

        ``key`` is the name of this submission within this task; concurrent branches each need one. The child has the
        labels of this task; of two with the same name, that of ``labels`` counts. It has none of the ``limits`` of this
        task: only its own.
        """
        refuse_for_task("ctx.submit", task, unknown, ChildOptions.__annotations__)
        attempt = self._attempt
        new, definition = new_task(
            attempt.services.definitions,
            task,
            args,
            now=attempt.services.time.now(),
            queue=queue,
            priority=priority,
            deadline=deadline,
            delay=delay,
            at=at,
            labels=merged_labels(attempt.task.labels, labels),
            limits=limits,
            by=attempt.lease.worker_id,
        )
        place = self.place()
        own = self._allot(place, f"submit:{plain(new.name)}"[:_LONGEST_NAME], key)
        returns = Any if definition is None else definition.returns
        return place.run(self._submit(place, own, new, returns, has_own_key=key is not None))

    async def _submit(
        self,
        place: CallPlace,
        key: str,
        new: NewTask,
        returns: Any,  # noqa: ANN401
        *,
        has_own_key: bool,
    ) -> Child[Any]:
        child_id = await children.submit_child(self._attempt, key, new, has_own_key=has_own_key)
        return Child(self, place, replace(new, id=child_id), key, returns)

    # Progress

    def progress(
        self, step: int, total: int | None = None, message: str = "", *, key: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Report progress to the task's watchers: an event on the task's own channel, emitted once."""
        payload: JsonValue = {"kind": "progress", "step": step, "total": total, "message": message}
        place = self.place()
        return place.run(waits.progress(self._attempt, self._allot_own(place, "progress", key), payload))

    # The same on every replay

    def now(self, *, key: str | None = None) -> datetime:
        """Return the time. A replay gets the same time, if anything durable was written after this call."""
        return waits.now(self._attempt, self._allot_own(self.place(), "now", key))

    def random(self, *, key: str | None = None) -> float:
        """Return a number in [0, 1) that is the same on every replay."""
        own = self._allot_own(self.place(), "random", key)
        return int.from_bytes(waits.draw(self._attempt, "random", own)[:7], "big") / (1 << 56)

    def uuid(self, *, key: str | None = None) -> uuid.UUID:
        """Return a UUID that is the same on every replay."""
        own = self._allot_own(self.place(), "uuid", key)
        return uuid.UUID(bytes=waits.draw(self._attempt, "uuid", own)[:16], version=5)

    # Where a call stands

    def branch(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function for use in a thread of your own: ``pool.map(ctx.branch(fetch), urls)``.

        Without it, the engine does not know which step a call in that thread belongs to.
        """
        self.place()
        return as_branch(function)

    def place(self) -> CallPlace:
        """Return the place in the journal of a call that is made here and now."""
        attempt = self._attempt
        if self._is_left_behind() and attempt.code_run.is_refused_too_often():
            return CallPlace(attempt, attempt.scope, "", is_dead=True)
        self._check()
        scope = SCOPE.get(None)
        if scope is None or scope.owner is not attempt:
            scope = attempt.scope
            if attempt.task.key_form != FLAT_KEYS and attempt.under_way:
                raise HoldfastError(
                    f"ctx of task {attempt.task.id} was used in a thread, or by a framework, while a step is under "
                    "way, and it is not known which step the call belongs to. Start threads with asyncio.to_thread, or "
                    "wrap what they run: pool.map(ctx.branch(function), items)"
                )
        if scope.parent is not None:
            scope.check()
        return CallPlace(attempt, scope, self._prefix if scope is self._home else scope.path)

    def _is_left_behind(self) -> bool:
        """Whether the call comes after the end of what it belongs to: the task, a try of a step, or a search."""
        attempt = self._attempt
        if attempt.leaving or (attempt.undoing is not None and not attempt.discovery.is_under_way):
            return True
        scope = SCOPE.get(None)
        return scope is not None and scope.owner is attempt and scope.parent is not None and scope.has_ended

    def _waiting_place(self, what: str) -> CallPlace:
        place = self.place()
        place.refuse_in_once(what)
        return place

    def _allot(self, place: CallPlace, name: str, key: str | None) -> str:
        part = name if key is None else key
        if place.is_dead:
            return part
        check_name("step name" if key is None else "step key", part)
        if part.startswith(RESERVED):
            raise InvalidValue(f"step names that begin with {RESERVED!r} are Holdfast's own; rename {part!r}")
        if not place.prefix and part.startswith(VERIFY):
            raise InvalidValue(f"step names that begin with {VERIFY!r} are for verifiers only; rename {part!r}")
        if INSIDE in part and self._attempt.task.key_form != FLAT_KEYS:
            check_part("step name", part)
        journal = self._attempt.journal
        return journal.allot(place.scope, place.prefix + name, None if key is None else place.prefix + key)

    def _check(self) -> None:
        """Refuse code that uses ``ctx`` where, or when, it cannot work."""
        if OPEN_HERE.get(None) is not None:
            refuse_inside("ctx")
        attempt = self._attempt
        if attempt.services.owner.pid != getpid():
            attempt.services.owner.check()
        if attempt.undoing is not None and not attempt.discovery.is_under_way:
            raise Unwind  # code of a discovery replay that is over
        if attempt.leaving:
            raise HoldfastError(
                f"task {attempt.task.id} has ended, so its ctx cannot be used any more; await what runs in the "
                "background before the task function returns"
            )
        if not attempt.is_at_home(running_loop()):
            raise HoldfastError(
                f"ctx of task {attempt.task.id} was used in another event loop; await it where the task function runs"
            )

    def _allot_own(self, place: CallPlace, name: str, key: str | None) -> str:
        journal = self._attempt.journal
        if key is not None:
            check_name("step key", key)
            if self._attempt.task.key_form != FLAT_KEYS:
                check_part("step key", key)
            return journal.allot_explicit(place.scope, f"{RESERVED}{place.prefix}{name}:{key}")
        return journal.allot_own(place.scope, f"{RESERVED}{place.prefix}{name}")


class CallPlace:
    """The place of a ``ctx`` call in the journal: its scope, and the prefix of its key."""

    __slots__ = ("_attempt", "is_dead", "prefix", "scope")

    def __init__(self, attempt: ContextOwner, scope: Scope, prefix: str, *, is_dead: bool = False) -> None:
        """Made for each call. ``is_dead``: the call never returns and never raises."""
        self._attempt = attempt
        self.scope = scope
        self.prefix = prefix
        self.is_dead = is_dead

    def run(self, call: Coroutine[Any, Any, R]) -> Coroutine[Any, Any, R]:
        """Return the call, to be awaited. Inside a step, the scope watches it, to stop it at the end of the try."""
        attempt = self._attempt
        if self.is_dead or (attempt.is_stopped and attempt.code_run.is_refused_too_often()):
            call.close()
            return dead_end(attempt.runner)
        return call if self.scope.parent is None else self.scope.watch(call)

    def refuse_in_once(self, what: str) -> None:
        """Refuse a wait inside a ``once`` step: it may take the task off its worker while the call is under way."""
        if self.scope.is_once:
            raise InvalidValue(
                f"{what} cannot be used inside step {self.scope.step!r}, which is a 'once' step or is inside one: "
                "if the worker changed meanwhile, its call would be in doubt. Call it before or after that step"
            )


def plain(name: str) -> str:
    """Return a name for use in a key, without the character that separates a step from the steps inside it."""
    return name.replace(INSIDE, ">")


class Child(Generic[R]):
    """A child task, as its parent sees it."""

    __slots__ = ("_context", "_key", "_new", "_place", "_returns", "id")

    def __init__(self, context: Context, place: CallPlace, new: NewTask, key: str, returns: Any) -> None:  # noqa: ANN401
        """Made by ``ctx.submit``, in ``place``."""
        self.id = new.id
        self._context = context
        self._place = place
        self._new = new
        self._key = key
        self._returns = returns

    def result(self) -> Coroutine[Any, Any, R]:
        """Wait for its end, without holding a worker, and return its result. Raises TaskFailed or TaskCancelled."""
        context, attempt = self._context, self._context._attempt  # noqa: SLF001 - a part of the same object
        place = context.place()
        place.refuse_in_once("the wait for a child")
        name = f"{self._key}:result"
        if place.prefix != self._place.prefix:
            name = f"{place.prefix}result:{self.id}"  # submitted in another place: the id makes it unique
        key = attempt.journal.allot(place.scope, name)
        return place.run(children.child_result(attempt, key, self._new, self._returns))
