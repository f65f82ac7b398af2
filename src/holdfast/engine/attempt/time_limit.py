"""The wall time that an attempt has left: that of its task, and that of the tasks above it.

While an attempt works, the clocks of its task and of all tasks above it run. So the moment at which the first clock
reaches its limit is known in advance. At that moment the attempt is stopped, as a deadline stops it. The clocks are
read once more before that: a person may have granted more time, or decided something while the attempt rested.
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
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.budget import Meter
from holdfast.model.errors import BudgetExceeded, StoreClosed
from holdfast.model.operations import UntilChildren, UntilDecided, UntilTime, Wait
from holdfast.model.records import Account
from holdfast.model.retry import GiveUp, RetryAt
from holdfast.model.step import Step
from holdfast.model.walltime import Life, wall_time_ms

LOOK_EVERY = 1.0
"""Seconds between two reads of the clocks while the attempt rests: some clocks may be stopped."""

LOOK_AT_CHILDREN = timedelta(minutes=1)
"""How long beyond its time a task waits for its children, which end by themselves, before it reads the clocks. The
clocks may be stopped for weeks."""

_KEY = f"{RESERVED}wall_time"


@dataclass(frozen=True, slots=True)
class _Clock:
    """A clock with a limit, as it was last read."""

    name: str
    limit: int
    spent: int
    at: datetime
    """When it reaches its limit, if it keeps running."""


class Resting(Protocol):
    """Where the attempt may rest while it waits."""

    @property
    def is_resting(self) -> bool:
        """Whether it only waits."""

    async def note_rest(self) -> None:
        """Record that it rests."""


class Timed(HeldTask, Protocol):
    """An attempt that is held to a limit."""

    time_limit: TimeLimit | None

    @property
    def residence(self) -> Resting:
        """Its place on its worker."""

    @property
    def over(self) -> bool:
        """Whether the attempt writes nothing any more."""

    @property
    def ending(self) -> bool:
        """Whether its outcome is being recorded."""

    @property
    def stopping(self) -> Stop | None:
        """Why the attempt must stop; None while it may run."""

    @property
    def undoing(self) -> Step | None:
        """The line of the journal that records why its steps are undone."""

    def stop(self, why: Stop, /) -> None:
        """Interrupt the task's code."""

    async def check(self) -> None:
        """Return only while this attempt may act."""


class TimeLimit:
    """The clocks that one attempt is held to."""

    def __init__(self, attempt: Timed, *, asks: bool) -> None:
        """``asks``: when the task's own time is spent, a person is asked for more, and the task does not fail."""
        self._attempt = attempt
        self._asks = asks
        self.above: tuple[str, ...] = ()
        """The tasks above this one that have limits of any kind, nearest first."""
        self._own = Family(attempt.services.store, attempt.task.id)
        self._clocks: tuple[_Clock, ...] = ()
        self._known: dict[str, tuple[int, datetime]] = {}
        """The most that a clock above can have counted, and at what time."""
        self._alarm: Alarm | None = None
        self._is_held = False

    async def open(self) -> None:
        """Find the clocks, and read them."""
        attempt = self._attempt
        self.above = tuple(await call_store(partial(limited_above, attempt.services.store, attempt.task)))
        await self.read()

    # The clocks

    async def read(self, books: Mapping[str, Mapping[str, Account]] | None = None) -> None:
        """Read the clocks again. ``books`` are the accounts of all these tasks, if they have just been read."""
        clocks = []
        for name in (*reversed(self.above), self._attempt.task.id):
            limit = await self._limit_of(name) if books is None else _limit_in(books.get(name, {}).values())
            clock = None if limit is None else await self._read(name, limit)
            if clock is not None:
                clocks.append(clock)
        # Of two clocks that end at the same moment, the one above comes first: its task may still get more time.
        self._clocks = tuple(sorted(clocks, key=lambda one: one.at))
        self._set_alarm()

    async def _limit_of(self, name: str) -> int | None:
        return _limit_in(await call_store(partial(self._attempt.services.store.accounts, name)))

    async def _read(self, name: str, limit: int) -> _Clock | None:
        """Return the clock; None if it will not reach its limit, because its task has already ended."""
        attempt, store = self._attempt, self._attempt.services.store
        if name == attempt.task.id:
            has_children = attempt.task.round > 1 or bool(attempt.journal.of_kind(CHILD))
            life = await call_store(partial(self._own.read, has_children=has_children))
            now = attempt.services.time.now()
            spent = wall_time_ms(life, now)
        else:
            # This clock runs while this attempt works. The task's own history gives an upper bound. The whole family,
            # which may be large, is read only when that bound reaches the limit.
            if (known := self._known.get(name)) is None:
                history = await call_store(partial(store.history, name))
                known = wall_time_ms(Life(history), now := attempt.services.time.now()), now
            now = attempt.services.time.now()
            spent = known[0] + _in_ms(now - known[1])
            if spent >= limit:
                life = await call_store(Family(store, name).read)
                now = attempt.services.time.now()
                spent = wall_time_ms(life, now)
                if spent < limit and life.history[-1].to_state.is_terminal:
                    return None
                known = spent, now
            self._known[name] = known
        return _Clock(name, limit, spent, now + timedelta(milliseconds=limit - spent))

    def spent(self, name: str) -> int | None:
        """Return what a clock had counted when it was last read, in milliseconds; None if it has no limit."""
        return next((clock.spent for clock in self._clocks if clock.name == name), None)

    # What follows from them

    @property
    def at(self) -> datetime | None:
        """When the first clock reaches its limit, if it keeps running."""
        return self._clocks[0].at if self._clocks else None

    @property
    def fails_at(self) -> datetime | None:
        """When the first clock reaches a limit that makes the task fail."""
        return next((clock.at for clock in self._clocks if not self._is_asked_for(clock)), None)

    @property
    def asks_at(self) -> datetime | None:
        """When a person is asked for more time."""
        return next((clock.at for clock in self._clocks if self._is_asked_for(clock)), None)

    def _is_asked_for(self, clock: _Clock) -> bool:
        return self._asks and clock.name == self._attempt.task.id

    @property
    def is_up(self) -> bool:
        """Whether the time is up, by the last read of the clocks."""
        return not self._is_held and self.at is not None and self._attempt.services.time.now() >= self.at

    async def settle(self) -> None:
        """Read the clocks again, and stop the attempt if its time is up."""
        attempt = self._attempt
        if attempt.residence.is_resting:
            await attempt.residence.note_rest()  # if it waits for people, its own clock is stopped
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
        """Keep the attempt running in this block, in which it asks a person for more time."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    # While the attempt is busy

    def _set_alarm(self) -> None:
        self.cancel()
        attempt = self._attempt
        if self.at is None or attempt.over:
            return
        seconds = attempt.services.time.seconds_until(self.at)
        with suppress(StoreClosed):
            least = LOOK_EVERY if attempt.residence.is_resting or self._is_held else 0.0
            self._alarm = attempt.services.alarms.after(max(seconds, least), self._fire)

    def cancel(self) -> None:
        """Cancel the alarm."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _fire(self) -> None:
        attempt = self._attempt
        if self._is_held or attempt.over or attempt.ending or attempt.stopping is not None:
            return
        attempt.services.start(self._settle_by_itself())

    async def _settle_by_itself(self) -> None:
        with suppress(StoreClosed):
            await self.settle()

    # While no worker has the task

    def waits(self, waits: Iterable[Wait]) -> tuple[Wait, ...]:
        """Return what wakes the task when its time is up, in addition to what it waits for.

        While a task waits for people, its clock is stopped. Its children are held to its clock. But a child that asks a
        person, or that no worker claims, does not end. So the task wakes a while after its time, and reads the clocks.
        Other waits do not stop the clock, so the moment is known.
        """
        kinds = {type(wait) for wait in waits}
        if self.at is None or (UntilDecided in kinds and UntilChildren not in kinds):
            return ()
        return (UntilTime(key=_KEY, at=self.at + LOOK_AT_CHILDREN if UntilChildren in kinds else self.at),)


async def hold_to_limit(attempt: Timed) -> None:
    """Hold the attempt of a plain task to the wall time that is left in its budget and in those of the tasks above."""
    limit = TimeLimit(attempt, asks=False)
    await limit.open()
    if limit.at is None:
        return
    attempt.time_limit = limit
    if limit.is_up:
        await limit.settle()
        await attempt.check()


def in_time(limit: TimeLimit | None, decision: RetryAt | GiveUp) -> RetryAt | GiveUp:
    """Give up a retry that could begin only after the wall time of the task is spent."""
    ends = None if limit is None else limit.fails_at
    if isinstance(decision, GiveUp) or ends is None or decision.at < ends:
        return decision
    return GiveUp(f"the wall time is spent at {ends.isoformat()}, before the next attempt at {decision.at.isoformat()}")


def _limit_in(accounts: Iterable[Account]) -> int | None:
    return next((line.limit for line in accounts if line.meter == Meter.WALL_TIME_MS), None)


def _in_ms(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)
