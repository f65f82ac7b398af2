"""The wall time that an attempt has left: that of its task, and that of the tasks above it.

While an attempt works the clocks of its task and of all tasks above it run. So the moment at which the first of them
has reached its limit can be said in advance. At that moment the attempt is stopped, as a deadline stops it. The clocks
are read once more before that: a person may have granted more time, or decided something while the attempt rested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.journal import CHILD, RESERVED
from holdfast.engine.attempt.stop_reasons import Stop, TimeSpent
from holdfast.engine.manage.family import Family, limited_above
from holdfast.engine.runtime.alarms import Alarm
from holdfast.engine.runtime.store_retry import insist
from holdfast.model.budget import Meter
from holdfast.model.errors import BudgetExceeded, StoreClosed
from holdfast.model.operations import UntilChildren, UntilDecided, UntilTime, Wait
from holdfast.model.records import Account
from holdfast.model.retry import GiveUp, RetryAt
from holdfast.model.step import Step
from holdfast.model.walltime import Life, wall_time_ms

LOOK_EVERY = 1.0
"""Seconds between two looks at the clocks while the attempt rests: some of them may stand still."""

LOOK_AT_CHILDREN = timedelta(minutes=1)
"""So long a task waits beyond its time for its children, which end by themselves, before it looks at the clocks: they
may stand for weeks."""

_KEY = f"{RESERVED}wall_time"


@dataclass(frozen=True, slots=True)
class _Clock:
    """A limited clock, as it was last read."""

    name: str
    limit: int
    spent: int
    at: datetime
    """When it reaches its limit, if it runs on."""


class RestingPlace(Protocol):
    """Where the attempt may rest while it waits."""

    @property
    def is_resting(self) -> bool:
        """Whether it only waits."""

    async def note_rest(self) -> None:
        """Write down that it rests."""


class Timed(HeldTask, Protocol):
    """An attempt that is held to a limit."""

    time_limit: TimeLimit | None

    @property
    def residence(self) -> RestingPlace:
        """Its place on its worker."""

    @property
    def over(self) -> bool:
        """Whether nothing is written any more."""

    @property
    def ending(self) -> bool:
        """Whether its outcome is being recorded."""

    @property
    def stopping(self) -> Stop | None:
        """Why it is to stop."""

    @property
    def undoing(self) -> Step | None:
        """The line of the journal that says why its steps are undone."""

    def stop(self, why: Stop, /) -> None:
        """Get out of the task's code."""

    async def check(self) -> None:
        """Pass only while this attempt may act."""


class TimeLimit:
    """The clocks that one attempt is held to."""

    def __init__(self, attempt: Timed, *, asks: bool) -> None:
        """``asks``: when the time of the task itself is spent, a person is asked for more, and it does not fail."""
        self._attempt = attempt
        self._asks = asks
        self.above: tuple[str, ...] = ()
        """The tasks above this one that have limits of any kind, nearest first."""
        self._own = Family(attempt.services.store, attempt.task.id)
        self._clocks: tuple[_Clock, ...] = ()
        self._known: dict[str, tuple[int, datetime]] = {}
        """What a clock above had counted at most, and when."""
        self._alarm: Alarm | None = None
        self._is_held = False

    async def open(self) -> None:
        """Find the clocks, and read them."""
        attempt = self._attempt
        self.above = tuple(await insist(partial(limited_above, attempt.services.store, attempt.task)))
        await self.read()

    # The clocks

    async def read(self, books: Mapping[str, Mapping[str, Account]] | None = None) -> None:
        """Read the clocks anew. ``books`` are the accounts of all these tasks, if they have just been read."""
        clocks = []
        for name in (*reversed(self.above), self._attempt.task.id):
            limit = await self._limit_of(name) if books is None else _limit_in(books.get(name, {}).values())
            clock = None if limit is None else await self._read(name, limit)
            if clock is not None:
                clocks.append(clock)
        # Of two at the same moment the one above: a sub-agent whose caller gets more time goes on.
        self._clocks = tuple(sorted(clocks, key=lambda one: one.at))
        self._set_alarm()

    async def _limit_of(self, name: str) -> int | None:
        return _limit_in(await insist(partial(self._attempt.services.store.accounts, name)))

    async def _read(self, name: str, limit: int) -> _Clock | None:
        """Return the clock; None for one that will not reach its limit, because its task has ended before."""
        attempt, store = self._attempt, self._attempt.services.store
        if name == attempt.task.id:
            has_children = attempt.task.round > 1 or bool(attempt.journal.of_kind(CHILD))
            life = await insist(partial(self._own.read, has_children=has_children))
            now = attempt.services.time.now()
            spent = wall_time_ms(life, now)
        else:
            # It runs while this attempt works. What it has counted at most, its own history says; the whole family, of
            # which there may be many, is only read when that is not enough.
            if (known := self._known.get(name)) is None:
                history = await insist(partial(store.history, name))
                known = wall_time_ms(Life(history), now := attempt.services.time.now()), now
            now = attempt.services.time.now()
            spent = known[0] + _in_ms(now - known[1])
            if spent >= limit:
                life = await insist(Family(store, name).read)
                now = attempt.services.time.now()
                spent = wall_time_ms(life, now)
                if spent < limit and life.history[-1].to_state.is_terminal:
                    return None
                known = spent, now
            self._known[name] = known
        return _Clock(name, limit, spent, now + timedelta(milliseconds=limit - spent))

    def spent(self, name: str) -> int | None:
        """Return what a limited clock had counted when it was last read, in milliseconds; None if it has no limit."""
        return next((clock.spent for clock in self._clocks if clock.name == name), None)

    # What follows from them

    @property
    def at(self) -> datetime | None:
        """When the first of them reaches its limit, if it runs on."""
        return self._clocks[0].at if self._clocks else None

    @property
    def fails_at(self) -> datetime | None:
        """The same, of those at which the task fails."""
        return next((clock.at for clock in self._clocks if not self._is_asked_for(clock)), None)

    @property
    def asks_at(self) -> datetime | None:
        """When a person is asked for more time."""
        return next((clock.at for clock in self._clocks if self._is_asked_for(clock)), None)

    def _is_asked_for(self, clock: _Clock) -> bool:
        return self._asks and clock.name == self._attempt.task.id

    @property
    def is_up(self) -> bool:
        """Whether the time is up, as far as is known without another look."""
        return not self._is_held and self.at is not None and self._attempt.services.time.now() >= self.at

    async def settle(self) -> None:
        """Look once more whether the time is up, and stop the attempt if it is."""
        attempt = self._attempt
        if attempt.residence.is_resting:
            await attempt.residence.note_rest()  # what it waits for may be people, and then its own clock stands
        await self.read()
        if self.is_up and attempt.undoing is None:
            clock = self._clocks[0]
            error = BudgetExceeded(
                meter=str(Meter.WALL_TIME_MS), limit=clock.limit, spent=clock.spent, reserved=0, asked=1
            )
            is_own = clock.name == attempt.task.id
            attempt.stop(TimeSpent(error, asks=self._is_asked_for(clock), caller=None if is_own else clock.name))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do not stop the attempt in this block: it asks a person for more time."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    # While the attempt is busy with something

    def _set_alarm(self) -> None:
        self.cancel()
        attempt = self._attempt
        if self.at is None or attempt.over:
            return
        seconds = attempt.services.time.seconds_until(self.at)
        with suppress(StoreClosed):
            least = LOOK_EVERY if attempt.residence.is_resting or self._is_held else 0.0
            self._alarm = attempt.services.alarms.after(max(seconds, least), self._ring)

    def cancel(self) -> None:
        """Ring no more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        attempt = self._attempt
        if self._is_held or attempt.over or attempt.ending or attempt.stopping is not None:
            return
        attempt.services.start(self._settle_by_itself())

    async def _settle_by_itself(self) -> None:
        with suppress(StoreClosed):
            await self.settle()

    # While no worker has the task

    def waits(self, waits: Iterable[Wait]) -> tuple[Wait, ...]:
        """Return what wakes the task, beside what it waits for, when its time is up.

        Where it waits for people its clock stands. Its children are held to its clock. But one that asks a person keeps
        a join from ending, and one that no worker claims does not end at all: so the task looks itself, a while later.
        Anything else does not stop the clock, so the moment is known.
        """
        kinds = {type(wait) for wait in waits}
        if self.at is None or (UntilDecided in kinds and UntilChildren not in kinds):
            return ()
        return (UntilTime(key=_KEY, at=self.at + LOOK_AT_CHILDREN if UntilChildren in kinds else self.at),)


async def hold_to_limit(attempt: Timed) -> None:
    """Hold an attempt at a plain task to the wall time that is left of its budget and of those above it."""
    limit = TimeLimit(attempt, asks=False)
    await limit.open()
    if limit.at is None:
        return
    attempt.time_limit = limit
    if limit.is_up:
        await limit.settle()
        await attempt.check()


def in_time(limit: TimeLimit | None, decision: RetryAt | GiveUp) -> RetryAt | GiveUp:
    """Give up a retry that could only begin when the wall time of the task is spent."""
    ends = None if limit is None else limit.fails_at
    if isinstance(decision, GiveUp) or ends is None or decision.at < ends:
        return decision
    return GiveUp(f"the wall time is spent at {ends.isoformat()}, before the next attempt at {decision.at.isoformat()}")


def _limit_in(accounts: Iterable[Account]) -> int | None:
    return next((line.limit for line in accounts if line.meter == Meter.WALL_TIME_MS), None)


def _in_ms(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)
