"""One try at one task: load, replay, perform, classify, record, release.

Everything it writes goes through its Outbox. Once it is over (suspended, stopped, fenced) it writes nothing more,
whatever the task's code still tries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.attempt import outcome
from holdfast.engine.attempt.blocking_calls import BlockingCalls
from holdfast.engine.attempt.code_run import CodeRun
from holdfast.engine.attempt.context import Context
from holdfast.engine.attempt.discovery import Discovery
from holdfast.engine.attempt.event_cursors import EventCursors
from holdfast.engine.attempt.exits import CodeTask, is_its_own
from holdfast.engine.attempt.journal import Journal
from holdfast.engine.attempt.outbox import Outbox
from holdfast.engine.attempt.outcome import Raised, Returned
from holdfast.engine.attempt.residence import Residence
from holdfast.engine.attempt.scope import SCOPE, Scope
from holdfast.engine.attempt.standstill import Standstill
from holdfast.engine.attempt.state_view import StateView
from holdfast.engine.attempt.steps_under_way import StepsUnderWay
from holdfast.engine.attempt.stop_reasons import Cancelled, DeadlinePassed, HandedBack, Lost, Stop, Unwind
from holdfast.engine.attempt.time_limit import TimeLimit, hold_to_limit
from holdfast.engine.effects import compensation
from holdfast.engine.effects.intents import Intents
from holdfast.engine.manage.past_state import EMPTY
from holdfast.engine.runtime import log
from holdfast.engine.runtime.alarms import Alarm
from holdfast.engine.runtime.services import Services
from holdfast.engine.runtime.store_retry import OUTAGE, PERMANENT_ERRORS, call_store
from holdfast.engine.runtime.where import current_task
from holdfast.engine.steps.children import EarlierChildren
from holdfast.engine.worker.lease import LeaseClock
from holdfast.engine.worker.slots import Slots
from holdfast.model.budget import Meter
from holdfast.model.effect import Effect, Evidence
from holdfast.model.errors import HoldfastError, InvalidValue, JournalMismatch, RowDamaged
from holdfast.model.operations import Move, Operation, Rest, ShareWorker
from holdfast.model.queries import Loaded
from holdfast.model.step import Step
from holdfast.model.transitions import TaskState, is_take_over
from holdfast.model.worker import POISON_AFTER, Claimed

T = TypeVar("T")


class Attempt:
    """A claimed task on its way to the next durable state."""

    __slots__ = (
        "_alarm",
        "_blocking",
        "_events",
        "_intents",
        "_runner",
        "_view",
        "again_at",
        "code_run",
        "definition",
        "discovery",
        "earlier_children",
        "ending",
        "fatal",
        "fresh",
        "has_company",
        "journal",
        "lease",
        "leaving",
        "loaded",
        "outbox",
        "over",
        "provided",
        "residence",
        "scope",
        "services",
        "standstill",
        "stays",
        "stopping",
        "task",
        "time_limit",
        "under_way",
        "undoing",
        "was_cancelled",
    )

    def __init__(
        self,
        claimed: Claimed,
        definition: TaskDefinition[..., Any],
        lease: LeaseClock,
        services: Services,
        slots: Slots[Attempt],
    ) -> None:
        """Start from what the claim reported; ``run`` does the rest. The attempt uses one of ``slots``."""
        self.task = claimed.task
        self.fresh = claimed.fresh
        self.definition = definition
        self.lease = lease
        self.services = services
        self.journal = Journal(self.task.id, self.task.round)
        self.has_company = False
        """The task is a suspect of its worker's death, but other tasks run beside it."""
        self.stays = False
        """This process runs the task by name. It keeps the task while it waits, and between two tries."""
        self.again_at: datetime | None = None
        """When the task is to be tried again; set when this attempt puts it back."""
        self.over = False
        """The attempt writes nothing any more: it was suspended, ended or fenced."""
        self.was_cancelled = False
        """Its asyncio task was cancelled by something else than Holdfast."""
        self.leaving = False
        """Its outcome is known: it needs no slot, and its ``ctx`` cannot be used any more."""
        self.stopping: Stop | None = None
        """Why the attempt must stop; None while it may run."""
        self.ending = False
        """Its outcome is being recorded: too late to stop it."""
        self.fatal: HoldfastError | None = None
        """An error that ends the attempt even if the task's code catches it, such as a journal that does not fit."""
        self.loaded: Loaded | None = None
        """What the store knew of the task when this attempt began; None for a task that never ran before."""
        self.earlier_children: asyncio.Future[EarlierChildren] | None = None
        """Read when a later round submits its first child."""
        self.provided: tuple[Operation, ...] = ()
        """Conditions for the result to count. If the store refuses them, the task continues instead of ending."""
        self.time_limit: TimeLimit | None = None
        """The wall time it may take; None if its task has no budget."""
        self.undoing: Step | None = None
        """The line of the journal that records why the steps are undone. If set, the attempt does nothing else."""
        self.standstill = Standstill(self)
        self.scope = Scope(self)
        """The scope of the task's own code."""
        self.outbox = Outbox(self)
        self.discovery = Discovery(self)
        self.under_way = StepsUnderWay(self)
        self.code_run = CodeRun(self)
        self.residence = Residence(self, slots)
        self._blocking: BlockingCalls | None = None
        self._events: EventCursors | None = None
        self._intents: Intents | None = None
        self._view: StateView | None = None
        self._runner: asyncio.Task[None] | None = None
        self._alarm: Alarm | None = None

    # The run, as a sentence

    async def run(self) -> None:
        """Load, replay, perform, classify, record: until the task ends, waits, or goes back to its queue."""
        self._runner = asyncio.current_task()
        SCOPE.set(self.scope)
        OUTAGE.set(self.services.store.outage)
        try:
            try:
                if (unreadable := await self._prepare_or_explain()) is not None:
                    await outcome.record_unreadable(self, unreadable)
                    return
                if self.undoing is not None and self.stopping is None:
                    with suppress(Unwind):  # stopped, or fenced
                        await self.code_run.drive(compensation.undo(self, self.undoing))
                # Twice at most: the task's own code, then its verifier's.
                while self.undoing is None and not self.over and self.stopping is None:
                    await (outcome.record_poison(self) if self.is_poison else self._perform_and_record())
            except asyncio.CancelledError:
                if self.stopping is None and not self.over:
                    self.was_cancelled = True
                    raise  # the program cancels the worker itself, or this asyncio task
                _forget_cancellation()
            if not self.over and self.stopping is not None:
                await outcome.record_stop(self, self.stopping)
        except Unwind:
            pass  # fenced while recording: this attempt may write nothing more
        finally:
            self.over = True
            self._cancel_alarms()
            self.residence.clear()
            self.services.permits.leave(self)

    async def _prepare_or_explain(self) -> Exception | None:
        """Load the task. Return the error about what is stored, if it cannot be read; no waiting mends that."""
        try:
            await self._prepare()
        except HoldfastError as error:
            if not isinstance(error, InvalidValue | JournalMismatch | RowDamaged):
                raise
            return error
        except Exception as error:  # noqa: BLE001 - whatever it is, this task alone must fail of it
            return error
        return None

    async def _prepare(self) -> None:
        if self.task.deaths:
            await self._log_claim()
        if not self.fresh:
            loaded = await call_store(
                lambda: self.services.store.load(self.task.id), permanent=(*PERMANENT_ERRORS, RowDamaged)
            )
            self.task = loaded.task
            self.journal = await Journal.read(self.task.id, self.task.round, loaded.steps)
            self.loaded = loaded
            self.outbox.take_over(self.task)
            if loaded.effects:
                self.intents.effects.update((effect.effect_id, effect) for effect in loaded.effects)
            self.undoing = compensation.begun(self.journal)
            self._view = await StateView.read(self)
        await self._record_late_facts()
        if self.undoing is not None:
            if isinstance(self.stopping, Cancelled):
                self.stopping = None  # the cancel arrived while the task was being loaded
            await self._begin_running()
            return  # neither a deadline nor a cancel stops the undo
        if self.task.deadline is not None:
            ahead = self.services.time.seconds_until(self.task.deadline)
            if ahead <= 0:
                self.stopping = DeadlinePassed()
            self._alarm = self.services.alarms.after(ahead, self._deadline_passed)
        if self.task.cancel_requested is not None:
            self.stopping = Cancelled(self.task.cancel_requested)
        if self.stopping is None or self.outbox.must_undo:
            await self._begin_running()

    async def _record_late_facts(self) -> None:
        """Record what the claim could not know, before any code runs."""
        if self.has_company:
            await self.outbox.commit(ShareWorker())
        if self.task.resting:  # adopted again under the same lease
            with suppress(Unwind):  # handed back for want of a place: the caller records the stop
                await self.residence.take_place(partial(self.outbox.commit, Rest(resting=False)))

    async def _log_claim(self) -> None:
        """Log the claim of a task with which workers have died. It is a take-over only if the last move was one."""
        history = await call_store(lambda: self.services.store.history(self.task.id))
        before = [move for move in history if move.fence < self.task.fence]
        taken_over = is_take_over(before, self.task.state, deaths=self.task.deaths)
        log.claimed(self.task, self.lease.worker_id, taken_over=taken_over)

    async def _begin_running(self) -> None:
        if self.task.state is TaskState.PENDING:  # acquired by name, not claimed from its queue
            self.ending = True  # do not stop halfway: the result of this Commit must be known
            await self.outbox.commit(Move(to=TaskState.RUNNING, reason="run by name"))
            self.task = replace(self.task, state=TaskState.RUNNING)
            self.ending = False

    async def _perform_and_record(self) -> None:
        await outcome.record(self, await self._perform())

    async def _perform(self) -> Returned | Raised | None:
        """Run the task's code. Return how it ended, or None if it was stopped or suspended."""
        ended: Returned | Raised
        try:
            ended = Returned(await self.code_run.drive(self._code()))
        except asyncio.CancelledError as error:
            if self.stopping is None and not self.over:
                if isinstance(self.runner, CodeTask) and self.runner.cancelled_itself:
                    _forget_cancellation()
                elif self.runner.cancelling():
                    raise  # the program cancels the worker itself
                ended = Raised(error)  # the code awaited something that was cancelled, or cancelled itself
            else:
                _forget_cancellation()
                return None
        except Unwind:
            # If this attempt was not stopped, the signal was for another one: the code used a ctx of another task.
            ended = Raised(HoldfastError("the code used the ctx of another task, which is over; use its own ctx"))
        except BaseException as error:
            if not isinstance(error, Exception) and not is_its_own(error, self.runner):
                raise
            ended = Raised(error)
        if self.over or self.stopping is not None:
            return None
        return ended if self.fatal is None else Raised(self.fatal)

    async def _code_after_preparation(self, prepare: Callable[[Attempt], Coroutine[Any, Any, None]]) -> Any:  # noqa: ANN401
        await prepare(self)
        return await self._next_code()

    def _code(self) -> Coroutine[Any, Any, Any]:
        """Return the code to run, with the preparation that its definition asks for."""
        prepare = self.definition.prepare
        if prepare is None and self._may_be_timed:
            prepare = hold_to_limit
        return self._next_code() if prepare is None else self._code_after_preparation(prepare)

    @property
    def _may_be_timed(self) -> bool:
        """Whether a plain task may have a limit on its wall time. The stored limit counts, not that of today's code.

        A child task is also held to the clocks of the tasks above it. A task that was not changed since its submit has
        the limits of its code, and they are not read from the store.
        """
        if self.task.parent_id is not None or Meter.WALL_TIME_MS in self.definition.budget_limits:
            return True
        if self.loaded is None:
            return False
        return any(line.meter == Meter.WALL_TIME_MS and line.limit is not None for line in self.loaded.accounts)

    def _next_code(self) -> Coroutine[Any, Any, Any]:
        """Return the verifier if the task is in review, otherwise the task's function."""
        if self.task.state is TaskState.REVIEW:
            return outcome.ask_verifier(self)
        return self.code()

    def code(self) -> Coroutine[Any, Any, Any]:
        """Call the task's function, and return its coroutine."""
        args, kwargs = self.definition.read_input(self.task.user_input)
        context = Context(self)
        if self.definition.is_async:
            code: Coroutine[Any, Any, Any] = self.definition.function(context, *args, **kwargs)
            return code
        return self.blocking.run(self.definition.function, context, *args, **kwargs)

    # Letting go

    def free_slot(self) -> None:
        """Free the slot: the outcome is known and about to be recorded. The attempt cannot be stopped any more."""
        self.ending = True
        if not self.leaving:
            self.leaving = True
            self.residence.leave()

    async def settle(self) -> None:
        """Let go of the task, and wait until the store has answered all that its branches have sent."""
        self.free_slot()
        async with self.outbox.alone_in_line():
            pass

    async def finish(self, *operations: Operation) -> None:
        """Let go of the task, and write these operations as its last ones."""
        self.free_slot()
        if self._intents is not None:
            await self.settle()
        await self.outbox.commit(*self.unfinished(), *operations)
        self.over = True
        for operation in operations:
            if isinstance(operation, Move):
                log.moved(self.task, operation)
                self.services.note_due(operation.available_at)

    def _cancel_alarms(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self.code_run.cancel_alarm()
        if self.time_limit is not None:
            self.time_limit.cancel()

    @property
    def is_stopped(self) -> bool:
        """Whether its code must stop: no call of ``ctx`` does anything more."""
        return self.over or self.stopping is not None or self.discovery.is_over

    @property
    def is_poison(self) -> bool:
        """Whether its code ignored too many stops: it is not run again."""
        return self.undoing is None and len(self.journal.ignored_stops()) >= POISON_AFTER

    # Being stopped

    def stop(self, why: Stop) -> None:
        """Interrupt the task's code at its next await; ``run`` then records what ``why`` asks for."""
        if self.over or self.stopping is not None:
            return
        if self.undoing is not None and not isinstance(why, HandedBack):
            return  # it undoes its steps because it was cancelled or failed: a second reason to stop changes nothing
        self.stopping = why
        self._interrupt()

    def lose_lease(self, why: str, *, elsewhere: bool = True) -> None:
        """Stop and write nothing, because the lease is over. ``elsewhere``: the task went to another worker."""
        if self.over:
            return
        self.over = True
        log.fenced(self.task, why, elsewhere=elsewhere)
        self.stopping = Lost(why)
        self._interrupt()

    def _interrupt(self) -> None:
        if self.ending or self._runner is None:
            return
        if self._blocking is not None:
            self._blocking.cancel()
        self.code_run.expect_end()
        if self._runner is not current_task():
            self._runner.cancel()
        elif not self.over:
            # The task's own code got here, from a Commit's verdict: interrupt it at its next await, unless it is over.
            asyncio.get_running_loop().call_soon(self._interrupt)

    def leave_code(self) -> None:
        """Interrupt the task's code, which may do more than wait: the task was taken off its worker."""
        self._interrupt()

    def hand_back(self) -> None:
        """Stop, and let another worker continue."""
        self.stop(HandedBack())

    def _deadline_passed(self) -> None:
        self.stop(DeadlinePassed())

    @property
    def is_late(self) -> bool:
        """Whether the task's deadline has passed, or its wall time is spent, even if no alarm has rung yet."""
        return self._is_past_deadline or (self.time_limit is not None and self.time_limit.is_up)

    @property
    def _is_past_deadline(self) -> bool:
        deadline = self.task.deadline
        return deadline is not None and self.undoing is None and self.services.time.now() >= deadline

    def suspend(self) -> None:
        """Suspend a task that this process kept while it waits: the process now ends."""
        self.stays = False
        self.residence.suspend()

    async def share_worker(self) -> None:
        """Record that the task is no longer a suspect, and that it no longer has its worker for itself."""
        if not self.over:
            with suppress(Unwind, HoldfastError):
                await self.outbox.commit(ShareWorker(acquitted=True))

    async def check(self, *, only_to_wait: bool = False) -> None:
        """Return only while this attempt may act: not stopped, not over, within its lease, and with a slot.

        A branch that only continues to wait needs no slot.
        """
        if self.over or self.stopping is not None:
            raise Unwind
        scope = SCOPE.get(None)
        if scope is not None and scope.parent is not None:
            scope.check()
        if self.undoing is not None:
            await self.discovery.block()
        if self.fatal is not None:
            raise self.fatal  # also if the code has caught it: nothing more is done on a journal that does not fit
        if self._is_past_deadline:
            self.stop(DeadlinePassed())
            raise Unwind
        if self.time_limit is not None and self.time_limit.is_up:
            await self.time_limit.settle()
            await self.check(only_to_wait=only_to_wait)
            return
        if not self.lease.holds:
            await self.lease.wait()
            await self.check(only_to_wait=only_to_wait)
        elif not only_to_wait and self.residence.branches is not None:
            await self.residence.wake_up()

    async def begin_work(self) -> None:
        """Return only while this attempt may act and the task is not paused: something new is about to be done."""
        await self.check()
        if self.standstill.since is not None:
            await self.standstill.stand()

    @property
    def waiting_scopes(self) -> list[Scope]:
        """Where its branches wait for something from outside."""
        branches = self.residence.branches
        return [] if branches is None else branches.waiting_scopes

    # Effects

    @property
    def intents(self) -> Intents:
        """Its effects."""
        if self._intents is None:
            self._intents = Intents()
        return self._intents

    def unfinished(self, inside: str | None = None) -> tuple[Operation, ...]:
        """Return what must be written about unfinished effects when the attempt lets go of its task.

        With ``inside``, only about effects of steps below that path: for the end of a try that they belong to.
        """
        if self._intents is None:
            return ()
        return self._intents.unfinished(lambda key: inside is None or self.journal.digests.is_inside(key, inside))

    @property
    def leaves_calls_running(self) -> bool:
        """Whether calls under way are left to end by themselves: the lease is over, but their end is still evidence."""
        return self.over

    async def add_evidence(self, evidence: Evidence) -> None:
        """Store what was learned after the lease was over."""
        await call_store(lambda: self.services.store.add_evidence(evidence))

    async def undo_now(self, effect: Effect) -> Effect:
        """Undo an effect at a person's request; return its new record."""
        return await compensation.undo_now(self, effect)

    # What the steps and waits of this attempt share

    async def take_turn(self, line: Step) -> None:
        """Count a replayed line, and let other tasks run now and then. A discovery search counts its own turns."""
        if not self.discovery.is_under_way:
            await self.services.turns.take(len(line.output or b""))

    def find(self, key: str, kind: str) -> Step | None:
        """Look up a key. A journal that does not fit ends the attempt, even if the task's code catches the error."""
        try:
            return self.journal.find(key, kind)
        except JournalMismatch as error:
            self.fatal = error
            raise

    @property
    def blocking(self) -> BlockingCalls:
        """The blocking functions of its code: most tasks have none."""
        if self._blocking is None:
            self._blocking = BlockingCalls(self)
        return self._blocking

    @property
    def events(self) -> EventCursors:
        """How far the task has read each channel of events: most tasks read none."""
        if self._events is None:
            self._events = EventCursors(self.journal)
        return self._events

    @property
    def view(self) -> StateView:
        """The AgentState as the task's code sees it. An agent keeps its own."""
        if self._view is None:
            self._view = StateView(self, (0, EMPTY), ())
        return self._view

    def pass_over(self, key: str) -> None:
        """Note that a try of a step is over: the code after it sees what the step's code patched."""
        if self._view is not None:
            self._view.pass_over(key)

    def is_at_home(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Return whether code that runs on this loop may use ``ctx``. None: the code runs on no loop.

        Code on no loop is normally in the thread of a blocking function, perhaps an abandoned one. Otherwise it is an
        ``asyncio.run(ctx.step(...))``, which is about to start a loop of its own.
        """
        if loop is None:
            return bool(self._blocking) or self.over or self.stopping is not None
        return loop is self.runner.get_loop()

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""
        assert self._runner is not None  # noqa: S101 - asked for only while it runs
        return self._runner


def attempt_of(context: Context) -> Attempt:
    """Return the attempt behind a context: for code that extends the engine, not for tasks."""
    attempt = context._attempt  # noqa: SLF001 - the engine's own code
    assert isinstance(attempt, Attempt)  # noqa: S101 - the engine makes contexts of nothing else
    return attempt


def _forget_cancellation() -> None:
    """Clear the engine's own cancel of the current asyncio task: the task continues."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
