"""One try at one task: load, replay, perform, classify, record, release.

Everything it writes goes through its Outbox. Once it is over (suspended, stopped, fenced) it writes nothing more,
whatever the task's code still tries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.api.sync.context import SyncContext
from holdfast.engine.attempt import outcome
from holdfast.engine.attempt.context import Context
from holdfast.engine.attempt.defiance import (
    LOOKS_AT_CLEAN_UP,
    UNWIND_BY_ITSELF,
    UNWIND_WITHIN,
    Driven,
    Refusals,
    calling_line,
    is_in_thread,
    keep_thread,
)
from holdfast.engine.attempt.exits import CodeTask, is_its_own
from holdfast.engine.attempt.journal import Journal, ended_by, reopened
from holdfast.engine.attempt.outbox import Outbox
from holdfast.engine.attempt.outcome import Raised, Returned
from holdfast.engine.attempt.scope import SCOPE, SHORT_KEY, Scope, current_branch, path_inside
from holdfast.engine.attempt.state_view import StateView
from holdfast.engine.attempt.stop_reasons import Cancelled, DeadlinePassed, HandedBack, Lost, Stop, Unwind
from holdfast.engine.attempt.time_limit import TimeLimit, hold_to_limit
from holdfast.engine.effects import compensation
from holdfast.engine.effects.intents import Intents, Search
from holdfast.engine.manage.past_state import EMPTY
from holdfast.engine.runtime import log
from holdfast.engine.runtime.alarms import Alarm
from holdfast.engine.runtime.services import Services
from holdfast.engine.runtime.store_retry import OUTAGE, insist
from holdfast.engine.runtime.where import current_task
from holdfast.engine.steps.call import Call, Line
from holdfast.engine.steps.children import EarlierChildren
from holdfast.engine.steps.suspension import ParkingLot
from holdfast.engine.steps.waits import cursors_of
from holdfast.engine.worker.lease import Lease
from holdfast.engine.worker.slots import Slots
from holdfast.model.budget import Meter
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.errors import HoldfastError, JournalMismatch, StoreClosed
from holdfast.model.operations import Move, Operation, Rest, ShareWorker, WriteStep
from holdfast.model.queries import Loaded
from holdfast.model.step import Step, StepState
from holdfast.model.task import FLAT_KEYS
from holdfast.model.transitions import TaskState
from holdfast.model.worker import POISON_AFTER, Claimed

T = TypeVar("T")


LEAST_REST = 5.0
"""Seconds that a task may rest before it can be put off: what it does besides waiting has to get somewhere."""

LOOK_FOR_CODE = 30.0
"""Seconds that a replay which looks for the code of steps may take: it does nothing but run through it."""

_LOOKED_AT: ContextVar[Search] = ContextVar("holdfast_looked_at")
"""Set for code that is only looked at, and whatever it starts."""


class Attempt(Outbox):
    """A claimed task on its way to the next durable state."""

    __slots__ = (
        "_alarm",
        "_busy",
        "_cursors",
        "_driven",
        "_intents",
        "_overdue",
        "_refusals",
        "_reserved_events",
        "_runner",
        "_search",
        "_sending",
        "_slots",
        "_sync_calls",
        "_under_way",
        "_view",
        "again_at",
        "condemned",
        "definition",
        "earlier_children",
        "ending",
        "fatal",
        "fresh",
        "has_company",
        "leaving",
        "loaded",
        "provided",
        "scope",
        "stays",
        "stopping",
        "threads",
        "time_limit",
        "undoing",
    )

    def __init__(
        self,
        claimed: Claimed,
        definition: TaskDefinition[..., Any],
        lease: Lease,
        services: Services,
        slots: Slots,
    ) -> None:
        """Begin with what the claim told; ``run`` does the rest. Its slot is one of ``slots``."""
        super().__init__(claimed.task, lease, services)
        self.fresh = claimed.fresh
        self.definition = definition
        self._slots = slots
        self.has_company = False
        """It is a suspect, and others run beside it all the same."""
        self.stays = False
        """This process runs the task by name: it keeps the task while it waits, and between two tries."""
        self.again_at: datetime | None = None
        """When the task is to be tried again; set when this attempt puts it back."""
        self.leaving = False
        self.stopping: Stop | None = None
        self.ending = False
        """Its outcome is being recorded: too late to stop it."""
        self.fatal: HoldfastError | None = None
        """An error the task's code cannot handle away, such as a journal that does not fit."""
        self.loaded: Loaded | None = None
        """What the store knew of the task when this attempt began; nothing for a task that was never begun before."""
        self.earlier_children: asyncio.Future[EarlierChildren] | None = None
        """Read when a later round submits its first child."""
        self.provided: tuple[Operation, ...] = ()
        """What must hold for its result to count. Should the store refuse it, the task goes on instead of ending."""
        self.time_limit: TimeLimit | None = None
        """The wall time it may take; None if its task has no budget."""
        self.undoing: Step | None = None
        """It does that, and nothing else: the line of the journal that says why."""
        self._view: StateView | None = None
        self.scope = Scope(self)
        """The task's own code, as a place in the journal."""
        self._search: Search | None = None
        """Its code only runs to be looked at."""
        self._sending: set[asyncio.Task[Any]] = set()
        self._busy = 0
        self._intents: Intents | None = None
        self._sync_calls: dict[asyncio.Task[Any], set[asyncio.Task[Any]]] = {}
        self.threads: list[int] = []
        """One entry for each thread of a blocking function's own: which function, by the id of its calls."""
        self._cursors: dict[str, int] | None = None
        self._reserved_events: dict[str, set[int]] = {}
        self._under_way: dict[str, Line] = {}
        self._runner: asyncio.Task[None] | None = None
        self._alarm: Alarm | None = None
        self.condemned: str | None = None
        """Its code did not let itself be stopped, and is never resumed: the line where that was noticed."""
        self._driven: Driven[Any] | None = None
        """The code that is under way."""
        self._overdue: Alarm | None = None
        self._refusals: dict[object, Refusals] = {}
        """How often each branch has called ``ctx`` although that is refused."""

    # The run, as a sentence

    async def run(self) -> None:
        """Load, replay, perform, classify, record: until the task ends, waits, or has to be given back."""
        self._runner = asyncio.current_task()
        SCOPE.set(self.scope)
        OUTAGE.set(self.services.store.outage)
        try:
            try:
                await self._prepare()
                if self.undoing is not None and self.stopping is None:
                    with suppress(Unwind):  # stopped, or fenced
                        await self._drive(compensation.undo(self, self.undoing))
                # Twice at most: the task's own code, then its verifier's.
                while self.undoing is None and not self.over and self.stopping is None:
                    await (outcome.record_poison(self) if self.is_poison else self._perform_and_record())
            except asyncio.CancelledError:
                if self.stopping is None and not self.over:
                    raise  # somebody cancels the worker itself
                _forget_cancellation()
            if not self.over and self.stopping is not None:
                await outcome.record_stop(self, self.stopping)
        except Unwind:
            pass  # fenced while recording: there is nothing left to say
        finally:
            self.over = True
            self._cancel_alarms()
            if self.parking is not None:
                self.parking.clear()

    async def _prepare(self) -> None:
        if self.task.deaths:
            await self._say_whether_taken_over()
        if not self.fresh:
            loaded = await insist(lambda: self.services.store.load(self.task.id))
            self.task = loaded.task
            self.journal = await Journal.read(self.task.id, self.task.round, loaded.steps)
            self.must_undo = self.task.must_undo
            self.loaded, self.version = loaded, self.task.version
            if loaded.effects:
                self.intents.effects.update((effect.effect_id, effect) for effect in loaded.effects)
            self.undoing = compensation.begun(self.journal)
            self._view = await StateView.read(self)
        await self._set_notes_right()
        if self.undoing is not None:
            if isinstance(self.stopping, Cancelled):
                self.stopping = None  # heard while it was being loaded
            await self._begin_running()
            return  # neither its deadline nor a cancel stops that
        if self.task.deadline is not None:
            ahead = self.services.time.seconds_until(self.task.deadline)
            if ahead <= 0:
                self.stopping = DeadlinePassed()
            self._alarm = self.services.alarms.after(ahead, self._deadline_passed)
        if self.task.cancel_requested is not None:
            self.stopping = Cancelled(self.task.cancel_requested)
        if self.stopping is None or self.must_undo:
            await self._begin_running()

    async def _set_notes_right(self) -> None:
        """Write down what the claim could not know, before any code runs."""
        if self.has_company:
            await self.commit(ShareWorker())
        if self.task.resting:  # adopted again under the same lease
            await self.commit(Rest(resting=False))

    async def _say_whether_taken_over(self) -> None:
        """Log the claim of a task with which workers have died: it may have waited, or been retried, since."""
        history = await insist(lambda: self.services.store.history(self.task.id))
        before = [move for move in history if move.fence < self.task.fence]
        log.claimed(self.task, self.lease.worker_id, taken_over=bool(before) and before[-1].is_taken_back)

    async def _begin_running(self) -> None:
        if self.task.state is TaskState.PENDING:  # acquired by name, not claimed from its queue
            self.ending = True  # not to be stopped halfway: what was sent has to be known
            await self.commit(Move(to=TaskState.RUNNING, reason="run by name"))
            self.task = replace(self.task, state=TaskState.RUNNING)
            self.ending = False

    async def _perform_and_record(self) -> None:
        await outcome.record(self, await self._perform())

    async def _perform(self) -> Returned | Raised | None:
        """Run the task's code; None if it was stopped or suspended meanwhile, and so did not end by itself."""
        ended: Returned | Raised
        try:
            ended = Returned(await self._drive(self._code()))
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
            # Meant for another attempt if this one goes on: its code used a ctx that is not its own.
            ended = Raised(HoldfastError("the ctx of another task was used, which is over; use the one you were given"))
        except BaseException as error:
            if not isinstance(error, Exception) and not is_its_own(error, self.runner):
                raise
            ended = Raised(error)
        if self.over or self.stopping is not None:
            return None
        return ended if self.fatal is None else Raised(self.fatal)

    async def _drive(self, code: Coroutine[Any, Any, T]) -> T:
        """Run code of the task's in a way that it can be left if it does not let itself be stopped."""
        self._driven = driven = Driven(code, self._is_condemned)
        try:
            result: T = await driven
            return result
        finally:
            self._driven = None

    def _is_condemned(self) -> bool:
        return self.condemned is not None

    async def _code_after_preparation(self, prepare: Callable[[Attempt], Coroutine[Any, Any, None]]) -> Any:  # noqa: ANN401
        await prepare(self)
        return await self._next_code()

    def _code(self) -> Coroutine[Any, Any, Any]:
        """Return what is to be run, with what its definition wants to see to before."""
        prepare = self.definition.prepare
        if prepare is None and self._may_be_timed:
            prepare = hold_to_limit
        return self._next_code() if prepare is None else self._code_after_preparation(prepare)

    @property
    def _may_be_timed(self) -> bool:
        """Whether a plain task may have a limit on its wall time: what counts is what was stored, not the code of now.

        A task below others is held to their clocks. One that nobody has touched since its submit has the limits of its
        code; they are not read for it.
        """
        if self.task.parent_id is not None or Meter.WALL_TIME_MS in self.definition.limits:
            return True
        accounts = () if self.loaded is None else self.loaded.accounts
        return any(line.meter == Meter.WALL_TIME_MS and line.limit is not None for line in accounts)

    def _next_code(self) -> Coroutine[Any, Any, Any]:
        """Return the verifier in review, otherwise the task's function."""
        if self.task.state is TaskState.REVIEW:
            return outcome.ask_verifier(self)
        return self.code()

    def code(self) -> Coroutine[Any, Any, Any]:
        """Return the task's function, called."""
        args, kwargs = self.definition.read_input(self.task.user_input)
        context = Context(self)
        if self.definition.is_async:
            code: Coroutine[Any, Any, Any] = self.definition.function(context, *args, **kwargs)
            return code
        return self.call_blocking(self.definition.function, context, *args, **kwargs)

    async def call_blocking(
        self, function: Callable[..., Any], context: Context, *args: object, **kwargs: object
    ) -> Any:  # noqa: ANN401
        """Run a blocking function of the task's code in a thread, with a context that blocks it."""
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        blocking = SyncContext(context, self, asyncio.get_running_loop())
        self._sync_calls[branch] = blocking._calls  # noqa: SLF001 - the engine's own side of it
        try:
            return await self.services.threads.run(lambda: function(blocking, *args, **kwargs))
        finally:
            del self._sync_calls[branch]
            blocking._abandon()  # noqa: SLF001

    def has_threads(self, calls: set[asyncio.Task[Any]]) -> bool:
        """Whether the blocking function that makes these calls has threads of its own at work."""
        return id(calls) in self.threads

    @property
    def sync_calls(self) -> Mapping[asyncio.Task[Any], set[asyncio.Task[Any]]]:
        """The branches that run a blocking function, and the calls of ``ctx`` that each function waits for."""
        return self._sync_calls

    # Letting go

    def let_go(self) -> None:
        """The outcome is known and about to be recorded: from here on it cannot be stopped, and needs no slot."""
        self.ending = True
        if not self.leaving:
            self.leaving = True
            self._slots.leave(self)

    async def settle(self) -> None:
        """Let go of the task, and return when it is known what branches that were left behind have written."""
        self.let_go()
        async with self._alone_in_line():
            pass

    async def finish(self, *operations: Operation) -> None:
        """Let go of the task, with these as the last that is written."""
        self.let_go()
        if self._intents is not None:
            await self.settle()
        await self.commit(*self.loose_ends(), *operations)
        self.over = True
        for operation in operations:
            if isinstance(operation, Move):
                log.moved(self.task, operation)
                self.services.note_due(operation.available_at)

    def _cancel_alarms(self) -> None:
        for alarm in (self._alarm, self._overdue):
            if alarm is not None:
                alarm.cancel()
        if self.time_limit is not None:
            self.time_limit.cancel()

    # Code that does not let itself be stopped

    def expect_end(self) -> None:
        """Give the task's code, which was stopped, a while for its clean-up."""
        if self._overdue is None and self._driven is not None:
            self._give_time(LOOKS_AT_CLEAN_UP)

    def _give_time(self, looks: int) -> None:
        """Look so often whether the code is over. A process that was frozen meanwhile has missed one look, not all."""

        def look() -> None:
            if looks > 1 or self.is_sending:
                self._give_time(max(looks - 1, 1))
            else:
                self.set_aside()

        with suppress(StoreClosed):
            self._overdue = self.services.alarms.after(UNWIND_WITHIN / LOOKS_AT_CLEAN_UP, look)

    def set_aside(self) -> None:
        """Leave the task's code where it is, if it is still under way although it was stopped.

        That is no death: the code may only be slow. What the engine itself has sent is waited for.
        """
        if self._driven is not None and not self.is_sending and self.condemned is None:
            self._condemn(self._driven.where, counts=False)

    def is_defied(self) -> bool:
        """Count a call of ``ctx`` that is refused; say whether its branch has made too many of them.

        If the whole attempt was stopped, it is condemned with the branch. Blocking code does not return from here.
        """
        refusals = self._refusals.get(branch := current_branch())
        if refusals is None:
            self._refusals[branch] = refusals = Refusals()
        if not refusals.are_too_many() and self.condemned is None:
            return False
        was_stopped = self.stopping is not None or (self.over and not self.leaving)
        if was_stopped and not self.is_only_looked_at:
            self._condemn(calling_line())
        elif refusals.are_news():
            log.ignored_end(self.task, calling_line())
        if is_in_thread():
            keep_thread(f"task {self.task.name} {self.task.id}")
        return True

    @property
    def is_stopped(self) -> bool:
        """Whether its code has to get out, and no call of ``ctx`` does anything more."""
        search = self._current_search
        return self.over or self.stopping is not None or (search is not None and search.over.is_set())

    def _condemn(self, where: str, *, counts: bool = True) -> None:
        loop = self.runner.get_loop()
        with suppress(RuntimeError):  # the loop is closed, and the process ends
            loop.call_soon_threadsafe(self._leave_for_good, where, counts)

    def _leave_for_good(self, where: str, counts: bool) -> None:  # noqa: FBT001 - a callback
        if self.condemned is not None:
            return
        if self.is_sending:  # its answer has to be heard in the code that is to be left
            with suppress(StoreClosed):
                self.services.alarms.after(1.0, partial(self._leave_for_good, where, counts))
            return
        self.condemned = where
        (log.ignored_stop if counts else log.slow_to_stop)(self.task, where)
        self._abandon_code(counts)

    def _abandon_code(self, counts: bool) -> None:  # noqa: FBT001 - a callback
        if counts and self.undoing is None and not isinstance(self.stopping, Lost):
            if self._driven is None or self.over:
                self.services.start(outcome.note_ignored_stop(self))
            else:
                self.buffer(WriteStep(outcome.ignored_stop(self)))  # it rides in the Commit that ends the attempt
        if self._driven is not None:
            self.runner.cancel()

    @property
    def is_poison(self) -> bool:
        """Whether its code did not let itself be stopped, again and again: it is not run once more."""
        return self.undoing is None and len(self.journal.ignored_stops()) >= POISON_AFTER

    # Being stopped

    def stop(self, why: Stop) -> None:
        """Get out of the task's code at its next await; ``run`` then records what ``why`` asks for."""
        if self.over or self.stopping is not None:
            return
        if self.undoing is not None and not isinstance(why, HandedBack):
            return  # it is being cancelled, or too late, already: that is why it undoes its steps
        self.stopping = why
        self._interrupt()

    def lose(self, why: str, *, elsewhere: bool = True) -> None:
        """The lease is over: stop, and write nothing. ``elsewhere``: the task went to another worker."""
        if self.over:
            return
        self.over = True
        log.fenced(self.task, why, elsewhere=elsewhere)
        self.stopping = Lost(why)
        self._interrupt()

    def _interrupt(self) -> None:
        if self.ending or self._runner is None:
            return
        for call in chain.from_iterable(self._sync_calls.values()):
            call.cancel()
        self.expect_end()
        if self._runner is not current_task():
            self._runner.cancel()
        elif not self.over:
            # From its own code, by way of a Commit's verdict: at its next await, unless it has come to its end by then.
            asyncio.get_running_loop().call_soon(self._interrupt)

    def leave_code(self) -> None:
        """Get out of the task's code, which may do other things than wait: the task was taken off its worker."""
        self._interrupt()

    def hand_back(self) -> None:
        """Stop, and let another worker go on."""
        self.stop(HandedBack())

    def _deadline_passed(self) -> None:
        self.stop(DeadlinePassed())

    @property
    def is_late(self) -> bool:
        """Whether the task's deadline has passed, or its wall time is spent, even if no alarm has said so yet."""
        return self._is_past_deadline or (self.time_limit is not None and self.time_limit.is_up)

    @property
    def _is_past_deadline(self) -> bool:
        deadline = self.task.deadline
        return deadline is not None and self.undoing is None and self.services.time.now() >= deadline

    def rest(self) -> None:
        """Give the slot back: nothing goes on here until something comes from outside."""
        if not self.leaving:
            self._slots.rest(self)
            if self._slots.is_closing:
                self.hand_back()

    @property
    def is_resting(self) -> bool:
        """Whether it has given its slot back and still only waits."""
        return self._slots.is_resting(self) and self.parking is not None and self.parking.only_waits

    @property
    def rested(self) -> float:
        """For how many seconds it has rested."""
        return self._slots.rested(self)

    @property
    def least_rest(self) -> float:
        """For how many seconds it may rest before it is put off: longer each time that was for nothing."""
        return LEAST_REST * 2.0 ** min(0 if self.parking is None else self.parking.spills_in_vain, 10)

    @property
    def is_known_to_rest(self) -> bool:
        """Whether the store knows that it rests."""
        return self.parking is not None and self.parking.is_noted

    async def note_rest(self) -> None:
        """Write down that it rests."""
        if self.parking is not None:
            with suppress(Unwind, HoldfastError):  # its branches find out
                await self.parking.note_rest()

    def suspend(self) -> None:
        """Take the task off this process, which kept it while it waits and now ends."""
        self.stays = False
        if self.parking is not None:
            self.parking.look_soon()

    def spill(self) -> None:
        """Leave the worker while it only waits: others need the place."""
        if self.parking is not None and self.is_resting:
            self.parking.spill()

    async def share_worker(self) -> None:
        """Write down that it is a suspect no more, and that its worker's death would not be its alone."""
        if not self.over:
            with suppress(Unwind, HoldfastError):
                await self.commit(ShareWorker(acquitted=True))

    async def begin_review(self) -> None:
        """Let go of the branches that the work has left waiting. The verifier is work again, and needs a slot."""
        if self.parking is not None:
            with suppress(Unwind):  # it was stopped: that is recorded next
                await self._wake_up()
            self.parking.clear()
            self.parking = None

    async def check(self, *, only_to_wait: bool = False) -> None:
        """Pass only while this attempt may act: not stopped, not over, within its lease, and with a slot.

        A branch that only goes on waiting needs no slot.
        """
        if self.over or self.stopping is not None:
            raise Unwind
        scope = SCOPE.get(None)
        if scope is not None and scope.parent is not None:
            scope.check()
        if self.undoing is not None:
            await self._refuse_what_is_looked_at()
        if self.fatal is not None:
            raise self.fatal  # also if the code has swallowed it: nothing more is done on a journal that does not fit
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
        elif not only_to_wait and self.parking is not None:
            await self._wake_up()

    async def _wake_up(self) -> None:
        """Have a slot again if it was given back, and be known to work: before anything is done."""
        if self._slots.is_resting(self):
            if not await self._slots.work(self):
                self.hand_back()  # another worker may have room
                raise Unwind
            await self.check()
        elif self.parking is not None and self.parking.is_noted:
            await self.parking.stir()
            await self.check()

    # Effects

    @property
    def intents(self) -> Intents:
        """Its effects."""
        if self._intents is None:
            self._intents = Intents()
        return self._intents

    def loose_ends(self, inside: str | None = None) -> tuple[Operation, ...]:
        """Return what has to be written about effects that are not through when the attempt lets go of its task.

        With ``inside``, those of steps below that path, when it lets go of a try that they belong to.
        """
        if self._intents is None:
            return ()
        return self._intents.loose_ends(lambda key: inside is None or self.journal.digests.is_inside(key, inside))

    # Steps inside steps

    @property
    def has_scopes(self) -> bool:
        """Whether the keys of this task's journal say which step a line is inside of; old journals do not."""
        return self.task.key_form != FLAT_KEYS

    def enter(self, call: Call, *, is_once: bool = False, go_back: Callable[[], None] | None = None) -> Scope:
        """Return the scope of a new try of a step, which begins where ``go_back`` leads."""
        if go_back is not None:
            go_back()
        if self.task.key_form == FLAT_KEYS:
            return self.scope
        if len(call.key) > SHORT_KEY:
            self.journal.digests.note(call.key)
        return Scope(self, call.key, SCOPE.get(self.scope), is_once=is_once)

    async def leave(self, scope: Scope) -> None:
        """See to the branches that a try has left behind. When the attempt is over nothing they do is written."""
        if not self.over and self.stopping is None:
            await scope.close(self._sending.__contains__, lambda: self.over or self.stopping is not None)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Have the branch that makes a call which must not be repeated be awaited, not cut off, when its try ends."""
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        self._sending.add(branch)
        try:
            yield
        finally:
            self._sending.discard(branch)

    def reopening(self, call: Call, keys: Iterable[str]) -> tuple[Operation, ...]:
        """Return what lets the next try of a step do again what ended this one, and clears up what it left."""
        if not self.has_scopes:
            return ()
        path = path_inside(call.key)
        is_inside = self.journal.digests.is_inside
        again = [step for step in ended_by(keys, self.journal.get) if is_inside(step.key, path)]
        return *self.loose_ends(path), *(WriteStep(reopened(step)) for step in again)

    @property
    def leaves_calls_running(self) -> bool:
        """Whether a call under way is left to end by itself: the lease is over, and how it ends is still evidence."""
        return self.over

    async def testify(self, evidence: Evidence) -> None:
        """Keep what was learned too late."""
        await insist(lambda: self.services.store.add_evidence(evidence))

    async def undo_now(self, effect: Effect) -> Effect:
        """Undo an effect a person wants undone; return how it stands then."""
        return await compensation.undo_now(self, effect)

    def announce(self, call: Call) -> None:
        """Note a step that has terms: how to ask about it, how to undo it."""
        self.intents.calls[call.key] = call
        search = self._current_search
        if search is not None and search.is_over_with(call.key):
            raise Unwind

    def is_searched(self, call: Call) -> bool:
        """Whether a replay looks for the code of steps inside this one; it never enters one that is being undone."""
        search = self._current_search
        if search is None or not self.has_scopes:
            return False
        line = self.journal.get(call.key)
        effect = None if line is None else self.intents.effects.get(line.effect_id or "")
        if effect is not None and effect.state in {EffectState.COMPENSATING, EffectState.COMPENSATED}:
            return False
        path, digests = path_inside(call.key), self.journal.digests
        return search.is_looking(lambda key: digests.is_inside(key, path))

    async def look_for(self, keys: set[str]) -> None:
        """Run the task's code as a replay that does nothing new, until it has announced these steps.

        The code may end before all of its branches got that far, and may wait for something that no longer comes:
        what was not announced in time is not there any more. What the code has opened, it closes before this returns,
        if it does so in time.
        """
        if not keys:
            return
        self._search = search = Search(self, keys, self.services.alarms)
        is_left = False
        code = Driven(self._replay(search), lambda: is_left)
        replay = asyncio.create_task(code.run(), name=f"holdfast-replay-{self.task.id}")
        alarm = self.services.alarms.after(LOOK_FOR_CODE, search.over.set)
        try:
            await search.over.wait()
            self._search = None
            search.end()
            await self._let_unwind(replay)
        finally:
            alarm.cancel()
            self._search = None
            search.end()
            is_left = True
            replay.cancel()
            await asyncio.wait([replay], timeout=1.0)
            self.fatal = None  # that the code does not fit any more is no reason to undo nothing

    async def _let_unwind(self, replay: asyncio.Task[None]) -> None:
        """Wait for the clean-up of code that is on its way out, which a cancel would cut off.

        The cancel is for code that waits elsewhere.
        """
        over = asyncio.Event()
        replay.add_done_callback(lambda _: over.set())

        def cancel() -> None:
            replay.cancel()

        after = self.services.alarms.after
        alarms = after(UNWIND_BY_ITSELF, cancel), after(UNWIND_WITHIN, over.set)
        try:
            await over.wait()
        finally:
            for alarm in alarms:
                alarm.cancel()

    @property
    def _current_search(self) -> Search | None:
        """The search that started the code which asks, also once it is over; or the one that is under way."""
        search = _LOOKED_AT.get(None)
        return search if search is not None and search.owner is self else self._search

    async def let_branches_pass(self) -> None:
        """In a search, let the other branches come as far as they can before a failure replays that may end them."""
        search = self._current_search
        if search is not None:
            await search.let_branches_pass()

    async def _refuse_what_is_looked_at(self) -> None:
        """Let code that is only looked at do nothing new, neither now nor when it wakes up after the search."""
        if self.is_only_looked_at and (search := self._current_search) is not None:
            await search.dead_end()
            raise Unwind

    async def _replay(self, search: Search) -> None:
        _LOOKED_AT.set(search)
        try:
            await self.code()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it may well end the way it did before
            log.logger.debug("task %s: replayed to undo its steps: %r", self.task.id, error)
        search.wait_for_others()

    @property
    def is_only_looked_at(self) -> bool:
        """See Outbox: the code that asks was started by ``look_for``."""
        search = _LOOKED_AT.get(None)
        return search is not None and search.owner is self

    @property
    def is_replaying(self) -> bool:
        """Whether its code only runs to be looked at."""
        return self._current_search is not None

    # What the steps and waits of this attempt share

    async def take_turn(self) -> None:
        """Count a line that is replayed, and let others go on now and then. A search counts turns of its own."""
        if not self.is_replaying:
            await self.services.turns.take()

    def find(self, key: str, kind: str) -> Step | None:
        """Look a key up; a journal that does not fit ends the attempt, even if the task's code catches the error."""
        try:
            return self.journal.find(key, kind)
        except JournalMismatch as error:
            self.fatal = error
            raise

    @property
    def view(self) -> StateView:
        """The AgentState as the task's code sees it. An agent keeps its own."""
        if self._view is None:
            self._view = StateView(self, (0, EMPTY), ())
        return self._view

    def pass_over(self, key: str) -> None:
        """Note that a try of a step is over: what its code patched is seen by the code after it."""
        if self._view is not None:
            self._view.pass_over(key)

    def cursors(self) -> dict[str, int]:
        """How far this task has read each channel."""
        if self._cursors is None:
            self._cursors = cursors_of(self.journal)
        return self._cursors

    def reserved_events(self, channel: str) -> set[int]:
        """Return the numbers of events that branches have found and not recorded yet."""
        return self._reserved_events.setdefault(channel, set())

    def depart(self, line: Line) -> None:
        """Note that a step is under way, so that a long one can be seen in the store."""
        self._under_way[line.key] = line

    def arrive(self, line: Line) -> None:
        """Note that it is not under way any more."""
        self._under_way.pop(line.key, None)
        self.pass_over(line.key)

    @property
    def steps_under_way(self) -> list[str]:
        """The keys of the steps that its branches do now."""
        return list(self._under_way)

    @property
    def has_steps_under_way(self) -> bool:
        """Whether any branch is doing something now that must not be cut off."""
        return bool(self._under_way) or self._busy > 0

    def only_waits(self, scopes: Iterable[Scope]) -> bool:
        """Whether each step under way has one of these scopes, where a branch waits, inside it."""
        waiting = list(scopes)
        return (
            self._busy == 0
            and not any(scope.is_once for scope in waiting)
            and all(any(scope.is_inside(key) for scope in waiting) for key in self._under_way)
        )

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Have the task stay on its worker until the block ends, whatever its other branches wait for."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    def long_steps(self, before: datetime) -> list[Line]:
        """Return the steps that are under way since before that time and not in the journal yet."""
        return [
            line
            for line in self._under_way.values()
            if line.began is not None and line.began < before and not self._is_noted(line)
        ]

    async def note_running(self, line: Line) -> None:
        """Write down that a step is being done, unless it is done by then: this would undo its record."""
        with suppress(Unwind, HoldfastError):  # the step itself finds out
            await self.commit_while(
                lambda: self._under_way.get(line.key) is line, line.written(self, StepState.RUNNING, error=line.error)
            )

    def _is_noted(self, line: Line) -> bool:
        known = self.journal.get(line.key)
        return known is not None and known.state is StepState.RUNNING and known.fence == self.task.fence

    def is_at_home(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Say whether ``ctx`` may be used by code that runs on this loop, or on none.

        None is the thread of a blocking function, or one that was abandoned; otherwise it is an
        ``asyncio.run(ctx.step(...))``, which is about to start a loop of its own.
        """
        if loop is None:
            return bool(self._sync_calls) or self.over or self.stopping is not None
        return loop is self.runner.get_loop()

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""
        assert self._runner is not None  # noqa: S101 - asked for only while it runs
        return self._runner

    def lot(self) -> ParkingLot:
        """Where its branches park."""
        if self.parking is None:
            self.parking = ParkingLot(self)
        return self.parking


def _forget_cancellation() -> None:
    """Go on after a cancel that was ours: it has done its work."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
