"""Suspension: branches that wait for something outside park, and the task leaves its worker when all of them do.

A parked branch first waits where it is. As soon as every branch of the task is parked, one Commit stores all the waits
and moves the task to waiting. Then its code is unwound and its slot is free. The event, timer, child or decision that
ends a wait moves the task back to pending, and a replay finds it. Until then the task costs a few rows.

If it cannot be proven that every branch is parked, but no step is under way, the task is a resident: it stays on its
worker without a slot. It can still be spilled: the same Commit, plus a timer. A task that a process runs by name is a
resident, too: if it were suspended, any worker could claim it when its wait is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from holdfast.engine.attempt.code_run import CodeRun
from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.journal import SPILLED
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.limit_line import begin_waiting, end_waiting
from holdfast.engine.attempt.outbox import Outbox
from holdfast.engine.attempt.scope import SCOPE, Scope
from holdfast.engine.attempt.steps_under_way import StepsUnderWay
from holdfast.engine.attempt.stop_reasons import Stop, Unwind, expect_unwind
from holdfast.engine.manage.rests import begin_rest, end_rest
from holdfast.engine.runtime import log
from holdfast.engine.steps.quiescence import is_joined, is_quiescent
from holdfast.model.errors import HoldfastError
from holdfast.model.operations import Move, Operation, Rest, UntilChildren, UntilDecided, UntilTime, Wait, WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import TaskState

T = TypeVar("T")

HOLD_SLOT = 3.0
"""Seconds. A task whose timer is due sooner keeps its slot: a suspension and a new claim cost more than waiting."""

LOOK_EVERY = 1.0
"""Seconds between two polls of what a branch waits for, if no notification arrives."""

LONGEST_LOOK = 60.0

_TURNS = 3
"""Turns of the loop before all branches are checked: new branches need them to reach their waits."""

JOIN = "holdfast:join"

SPILLED_KEY = "holdfast:spilled"

SPILLED_FOR, SPILLED_FOR_AT_MOST = 300.0, 86_400.0
"""Seconds after which a spilled task comes back. They double each time it comes back without progress."""

KEEPS_PLACES_FOR = 60.0
"""Seconds for which a task that waits for a permit keeps its place in its queue, and those of its own limits.

Without them, the permit would be of no use to it, and the next tasks of its queue would begin only to wait behind it.
"""

SPILLED_FOR_LIMIT_AT_MOST = 60.0
"""Seconds after which a spilled task that waits for a limit comes back at the latest."""


@dataclass(slots=True, eq=False)
class Parked:
    """One branch, and what it waits for."""

    waits: tuple[Wait, ...]
    step: Step | None
    """The line of the journal for this wait; written when the task is suspended. A wait for a limit has none."""
    branch: asyncio.Task[Any]
    woken: asyncio.Future[None]
    scope: Scope
    patience: float = LOOK_EVERY
    """Seconds until the next poll, if nothing happens before."""
    limits: LimitWait | None = None
    """The permit that it waits for, if that is what it waits for: then the task cannot be suspended."""
    seconds_away: Callable[[], float] = lambda: 0.0
    """Returns in how many seconds it is worth to ask for the permit again."""


class LimitWait(Protocol):
    """A request for a permit of limits."""

    keys: tuple[str, ...]
    over: asyncio.Future[None]
    """Done when the wait is over."""


class WallTime(Protocol):
    """The wall time that a task has left."""

    def waits(self, waits: Iterable[Wait], /) -> tuple[Wait, ...]:
        """Return what wakes the task when its time is up, in addition to what it waits for."""


class Slot(Protocol):
    """The slot of the attempt on its worker."""

    def rest(self) -> None:
        """Give it back."""

    @property
    def is_resting(self) -> bool:
        """Whether it was given back, and the attempt still only waits."""

    @property
    def rested(self) -> float:
        """For how many seconds it has rested."""


class BlockedThreads(Protocol):
    """The blocking functions of the task's code that are under way."""

    @property
    def by_branch(self) -> Mapping[asyncio.Task[Any], set[asyncio.Task[Any]]]:
        """The branches that run a blocking function, and the calls of ``ctx`` that each function waits for."""

    def has_threads(self, calls: set[asyncio.Task[Any]], /) -> bool:
        """Return whether the function that makes these calls has running threads of its own."""


class Suspendable(HeldTask, Protocol):
    """An attempt that can be taken off its worker."""

    over: bool
    stays: bool

    @property
    def outbox(self) -> Outbox:
        """What it writes with."""

    @property
    def under_way(self) -> StepsUnderWay:
        """The steps that are running now."""

    @property
    def code_run(self) -> CodeRun:
        """The task's code."""

    @property
    def blocking(self) -> BlockedThreads:
        """Its blocking functions."""

    @property
    def time_limit(self) -> WallTime | None:
        """The wall time it may take."""

    @property
    def scope(self) -> Scope:
        """The scope of the task's own code."""

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""

    @property
    def stopping(self) -> Stop | None:
        """Why the attempt must stop; None while it may run."""

    def unfinished(self) -> tuple[Operation, ...]:
        """Return what must be written about unfinished effects."""

    def leave_code(self) -> None:
        """Interrupt the task's code, which may do more than wait."""

    async def check(self, *, only_to_wait: bool = False) -> None:
        """Return only while this attempt may act."""


class WaitingBranches:
    """The branches of one attempt that wait, and those of them that are parked."""

    __slots__ = (
        "_attempt",
        "_branches",
        "_has_rested",
        "_looking",
        "_noted",
        "_noting",
        "_parked",
        "_slot",
        "_suspending",
        "_waiting",
    )

    def __init__(self, attempt: Suspendable, slot: Slot) -> None:
        """Start empty."""
        self._attempt = attempt
        self._slot = slot
        self._parked: dict[asyncio.Task[Any], Parked] = {}
        self._waiting: dict[asyncio.Task[Any], Parked] = {}
        """The branches that are parked, or that just check whether their wait is over."""
        self._branches: set[asyncio.Task[Any]] = set()
        self._has_rested = False
        self._looking = False
        self._noted = False
        self._noting = asyncio.Lock()
        self._suspending: asyncio.Task[None] | None = None

    async def park(
        self, waits: tuple[Wait, ...], step: Step, topics: tuple[str, ...], look: Callable[[], Awaitable[T | None]]
    ) -> T:
        """Wait until ``look`` returns something: here, or in a later attempt if the task is suspended.

        ``topics`` are the notifications after which ``look`` is called.
        """
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        self._branches.add(branch)
        services = self._attempt.services
        with ExitStack() as watching:
            scope = SCOPE.get(self._attempt.scope)
            parked = Parked(waits, step, branch, asyncio.get_running_loop().create_future(), scope)
            self._waiting[branch] = parked
            watching.callback(self._waiting.pop, branch)
            for topic in topics:
                watching.enter_context(services.watcher.watch(topic, lambda: _set(parked.woken)))
            while True:
                await self._attempt.check(only_to_wait=True)
                found = await look()
                if found is not None:
                    if self._has_rested:
                        await self._attempt.check()  # the code after the wait needs a slot
                    return found
                await self._wait(parked)

    async def stay(self, limits: LimitWait, seconds_away: Callable[[], float]) -> None:
        """Wait here for a permit. A task that is spilled meanwhile comes back in about so many ``seconds_away``."""
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        self._branches.add(branch)
        scope = SCOPE.get(self._attempt.scope)
        parked = Parked((), None, branch, limits.over, scope, limits=limits, seconds_away=seconds_away)
        self._waiting[branch] = self._parked[branch] = parked
        self.look_soon()
        try:
            await limits.over
            await self._suspended()
        finally:
            del self._waiting[branch], self._parked[branch]

    async def _wait(self, parked: Parked) -> None:
        # A timer needs no poll. But other branches may have ended meanwhile, and then the task can give its slot back.
        parked.patience = min(parked.patience * 2, LONGEST_LOOK)
        seconds = min((self._seconds_until(timer) for timer in _timers(parked)), default=LOOK_EVERY)
        seconds = min(seconds, parked.patience)
        if len(parked.waits) > len(_timers(parked)):
            seconds = min(seconds, LOOK_EVERY)
        alarm = self._attempt.services.alarms.after(seconds, lambda: _set(parked.woken))
        self._parked[parked.branch] = parked
        self.look_soon()
        try:
            while True:
                await parked.woken
                if self._suspending is None:
                    break
                await self._suspended()
        finally:
            alarm.cancel()
            del self._parked[parked.branch]
            parked.woken = asyncio.get_running_loop().create_future()

    async def _suspended(self) -> None:
        """Wait while a suspension is under way. Raises Unwind once it is durable."""
        if self._suspending is not None:
            await asyncio.wait([self._suspending])
        if self._attempt.over:
            raise Unwind

    def clear(self) -> None:
        """Unwind the branches that are still parked: their attempt is over, and they are never resumed."""
        for one in list(self._parked.values()):
            expect_unwind(one.branch)
            if not one.woken.done():
                one.woken.set_exception(Unwind())

    # Resting on the worker

    @property
    def is_noted(self) -> bool:
        """Whether the store knows that the task rests, or a Commit about it is under way."""
        return self._noted or self._noting.locked()

    async def note_rest(self) -> None:
        """Record that the task rests: then a death of its worker does not count against the task.

        That gives its places back. A task that waits for a permit keeps them for a while, and only records the wait.
        """
        async with self._noting:
            keeps_places = await self._keeps_places()
            if self._noted or self._suspending is not None or not self._slot.is_resting:
                return
            limits = {key for one in self._waiting.values() if one.limits for key in one.limits.keys}
            waits_for_limits = begin_waiting(self._attempt, limits) if limits else []
            if keeps_places:
                if waits_for_limits:
                    await self._attempt.outbox.commit(*map(WriteStep, waits_for_limits))
                return
            lines = [one for one in self._lines(self._waiting) if self._attempt.journal.get(one.key) is None]
            kinds = {type(wait) for one in self._waiting.values() for wait in one.waits}
            if self._attempt.time_limit is not None and not kinds.isdisjoint({UntilDecided, UntilChildren}):
                lines.append(begin_rest(self._attempt, self._slot.rested))
            await self._attempt.outbox.commit(*map(WriteStep, [*lines, *waits_for_limits]), Rest(resting=True))
            self._noted = True

    async def _keeps_places(self) -> bool:
        attempt = self._attempt
        if self._slot.rested >= KEEPS_PLACES_FOR or all(one.limits is None for one in self._waiting.values()):
            return False
        return await attempt.services.permits.has_places(attempt.task)

    async def note_work(self) -> None:
        """Record that the task no longer rests."""
        async with self._noting:
            if self._noted:
                lines = [*end_rest(self._attempt), *end_waiting(self._attempt)]
                await self._attempt.outbox.commit(*map(WriteStep, lines), Rest(resting=False))
                self._noted = False

    # Taking the task off its worker

    @property
    def is_empty(self) -> bool:
        """Whether no branch is parked."""
        return not self._parked

    def look_soon(self) -> None:
        """Check, after a few turns of the loop, whether all branches are parked."""
        if not self.is_empty and not self._looking and self._suspending is None:
            self._look_in(_TURNS, None)

    def _look_in(self, turns: int, seen: frozenset[asyncio.Task[Any]] | None) -> None:
        self._looking = True
        asyncio.get_running_loop().call_soon(self._look, turns, seen)

    def _look(self, turns: int, seen: frozenset[asyncio.Task[Any]] | None) -> None:
        """Check whether all branches are parked, and whether they are the same as those in ``seen``."""
        if turns:
            self._look_in(turns - 1, seen)
            return
        self._looking = False
        attempt = self._attempt
        if attempt.over or attempt.stopping is not None or self._suspending is not None or not self._is_worth_it():
            return
        if any(one.limits is not None and one.woken.done() for one in self._parked.values()):
            return  # it has its permit, and a slot: it is about to work
        if not attempt.stays and self._all_parked():
            now = frozenset(self._parked)
            if now != seen:
                # A branch that has just ended wakes the branch that gathers it only in the next turn of the loop.
                self._look_in(_TURNS, now)
                return
            self._suspending = asyncio.create_task(self._suspend(), name=f"holdfast-suspend-{attempt.task.id}")
        else:
            self._note_timers()
            if self.only_waits:
                self._has_rested = True
                self._slot.rest()

    @property
    def only_waits(self) -> bool:
        """Whether every step under way has a waiting branch inside it."""
        return bool(self._waiting) and self._attempt.under_way.only_wait(self.waiting_scopes)

    @property
    def waiting_scopes(self) -> list[Scope]:
        """Where its branches wait."""
        return [one.scope for one in self._waiting.values()]

    def _note_timers(self) -> None:
        """Write the timers that wait beside a busy branch, with the next Commit.

        So they keep their time, and do not start again, if this process dies meanwhile.
        """
        for parked in self._parked.values():
            step = parked.step
            if step is not None and _timers(parked) and self._attempt.journal.get(step.key) is None:
                self._attempt.outbox.buffer(WriteStep(step))

    def _is_worth_it(self) -> bool:
        """Whether no timer is due soon: the task waits for such a timer on its worker."""
        timers = [timer for parked in self._parked.values() for timer in _timers(parked)]
        return bool(self._parked) and all(self._seconds_until(timer) > HOLD_SLOT for timer in timers)

    def _seconds_until(self, timer: UntilTime) -> float:
        return max(self._attempt.services.time.seconds_until(timer.at), 0.0)

    def _all_parked(self) -> bool:
        if any(parked.woken.done() for parked in self._parked.values()):
            return False  # it is about to check whether its wait is over
        if any(parked.limits is not None for parked in self._parked.values()):
            return False  # a wait for a limit is mostly over within seconds, and the store does not end it
        if self._attempt.under_way:
            return False  # a step runs, perhaps in a branch that no other code awaits at the moment
        self._branches = {branch for branch in self._branches if not branch.done()}
        # The thread of a blocking function waits for its only call, which is parked. So the function's branch waits.
        blocked = {
            branch
            for branch, calls in self._attempt.blocking.by_branch.items()
            if len(calls) == 1 and calls <= self._parked.keys() and not self._attempt.blocking.has_threads(calls)
        }
        return is_quiescent(self._attempt.runner, self._branches, self._parked.keys() | blocked)

    def spill(self) -> None:
        """Take the task off its worker although some code may be under way: it runs again when the task comes back.

        What that code waits for is unknown, so the task comes back after a while in any case.
        """
        attempt = self._attempt
        if self._waiting and self._suspending is None and not attempt.over and attempt.stopping is None:
            line, seconds = self._spill_line()
            at = attempt.services.time.now() + timedelta(seconds=seconds)
            spilling = self._suspend(UntilTime(key=SPILLED_KEY, at=at), line=line)
            self._suspending = asyncio.create_task(spilling, name=f"holdfast-spill-{attempt.task.id}")

    @property
    def useless_spills(self) -> int:
        """How often the task was spilled since its last progress."""
        journal = self._attempt.journal
        before = journal.get(SPILLED_KEY)
        if before is None or before.finished_at is None or journal.has_ended_since(before.finished_at):
            return 0
        return before.attempts

    def _spill_line(self) -> tuple[Step, float]:
        """Return the line that counts how often the task was spilled without progress, and when it comes back.

        A task that waits for a limit comes back when its turn may come, and its spill does not count.
        """
        attempt, now = self._attempt, self._attempt.services.time.now()
        ahead = [one.seconds_away() for one in self._waiting.values() if one.limits is not None]
        times = self.useless_spills + (not ahead)
        line = journal_line(
            attempt,
            SPILLED_KEY,
            SPILLED,
            attempt.journal.get(SPILLED_KEY),
            state=StepState.COMPLETED,
            attempts=times,
            started_at=now,
        )
        if ahead:
            return line, min(max(min(ahead), 1.0), SPILLED_FOR_LIMIT_AT_MOST)
        return line, min(SPILLED_FOR * 2.0 ** min(times - 1, 16), SPILLED_FOR_AT_MOST)

    async def _suspend(self, *more: Wait, line: Step | None = None) -> None:
        attempt = self._attempt
        waiting = self._parked if line is None else self._waiting  # some of which may just check their wait
        lines = self._lines(waiting) + ([] if line is None else [line])
        waits = (*self._waits(waiting), *more)
        besides = () if attempt.time_limit is None else attempt.time_limit.waits(waits)
        reason = _describe(waits, is_limited=any(one.limits is not None for one in waiting.values()))
        move = Move(to=TaskState.WAITING, reason=reason, waits=(*waits, *besides))
        try:
            await attempt.outbox.commit(*attempt.unfinished(), *(WriteStep(one) for one in lines), move)
        except (HoldfastError, Unwind) as error:
            # Fenced, or refused: the branches continue, and get the error themselves when they write.
            log.not_suspended(attempt.task, error)
        else:
            attempt.over = True
            attempt.code_run.expect_end()
            log.moved(attempt.task, move)
            for timer in (wait for wait in move.waits if isinstance(wait, UntilTime)):
                attempt.services.note_due(timer.at)
        finally:
            self._suspending = None
            if attempt.over:
                self.clear()
                if line is not None:
                    attempt.leave_code()
            else:
                for one in list(self._parked.values()):
                    _set(one.woken)

    @staticmethod
    def _lines(waiting: Mapping[asyncio.Task[Any], Parked]) -> list[Step]:
        return [one.step for one in waiting.values() if one.step is not None]

    def _waits(self, waiting: Mapping[asyncio.Task[Any], Parked]) -> tuple[Wait, ...]:
        waits = [wait for one in waiting.values() for wait in one.waits]
        joins = [wait for wait in waits if isinstance(wait, UntilChildren)]
        if len(joins) > 1 and len(joins) == len(waits) and is_joined(self._attempt.runner, waiting):
            children = tuple(child for wait in joins for child in wait.children)
            return (UntilChildren(key=JOIN, children=tuple(dict.fromkeys(children))),)
        return tuple(waits)


def _timers(parked: Parked) -> list[UntilTime]:
    return [wait for wait in parked.waits if isinstance(wait, UntilTime)]


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _describe(waits: tuple[Wait, ...], *, is_limited: bool) -> str:
    kinds = {
        "UntilTime": "a timer",
        "UntilEvent": "an event",
        "UntilChildren": "children",
        "UntilDecided": "a decision",
    }
    # The timer of a spill is there because of the limit.
    shown = [wait for wait in waits if not (is_limited and wait.key == SPILLED_KEY)]
    names = sorted({kinds.get(type(wait).__name__, "something outside") for wait in shown})
    names += ["a limit"] * is_limited
    return f"waits for {' and '.join(names)}"
