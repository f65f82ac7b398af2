"""The slots of a worker: a slot is for work.

An attempt has one from its beginning until only its last Commit is left to do. While it does nothing but wait for
something outside it gives the slot back: it is a resident, which costs memory and no more. It takes a slot again before
it does anything new, and comes before tasks that are still in the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

from holdfast.engine.runtime.alarms import Alarms

A = TypeVar("A")

PATIENCE = 5.0
"""Seconds an attempt waits for a slot. After that another worker may have its task."""


class Slots(Generic[A]):
    """Which attempts have a slot, have given it back, or want one again."""

    __slots__ = (
        "_alarms",
        "_on_free",
        "_reserved",
        "_resting",
        "_wanted",
        "_working",
        "freed_at",
        "is_closing",
        "total",
    )

    def __init__(self, total: int | None, alarms: Alarms, on_free: Callable[[], None]) -> None:
        """``total`` None is without limit; ``on_free`` is called whenever one may be free."""
        self.total = total
        self.freed_at = alarms.boot()
        """When one became free for the last time, on the boot clock."""
        self._alarms = alarms
        self._on_free = on_free
        self.is_closing = False
        """The worker is to stop: nothing may come to rest on it any more."""
        self._reserved = 0
        self._working: set[A] = set()
        self._resting: dict[A, float] = {}
        """Since when, on the boot clock; the longest first."""
        self._wanted: dict[A, set[asyncio.Future[None]]] = {}
        """The attempts that want one again, the first first, and for each of them the branches that wait for it."""

    @property
    def busy(self) -> int:
        """How many are taken, or reserved, or wanted by an attempt that has given its own back."""
        return len(self._working) + len(self._wanted) + self._reserved

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """Keep so many free for what is being claimed, until the block ends."""
        self._reserved += count
        try:
            yield
        finally:
            self._reserved -= count
            self._hand_out()

    def take(self, attempt: A) -> None:
        """Give a slot to an attempt that begins."""
        self._working.add(attempt)

    def leave(self, attempt: A) -> None:
        """The attempt needs no slot any more."""
        self._working.discard(attempt)
        self._resting.pop(attempt, None)
        self._wanted.pop(attempt, None)  # a branch that was left behind finds out when its patience ends
        self._freed()

    def rest(self, attempt: A) -> None:
        """The attempt only waits: others may have its slot."""
        if attempt in self._working:
            self._working.discard(attempt)
            self._resting[attempt] = self._alarms.boot()
            self._freed()

    def resting(self, seconds: float = 0.0) -> list[A]:
        """Return the attempts that gave their slots back, at least so long ago; the longest first."""
        before = self._alarms.boot() - seconds
        return [attempt for attempt, since in self._resting.items() if since <= before]

    def rested(self, attempt: A) -> float:
        """Return for how many seconds an attempt has been resting."""
        now = self._alarms.boot()
        return now - self._resting.get(attempt, now)

    @property
    def working(self) -> frozenset[A]:
        """The attempts that have a slot."""
        return frozenset(self._working)

    def is_resting(self, attempt: A) -> bool:
        """Whether the attempt has given its slot back."""
        return attempt in self._resting

    async def work(self, attempt: A) -> bool:
        """Return when an attempt that rested has a slot again; False if none became free in time.

        Several branches of the attempt may ask. They want one slot together, and get it together.
        """
        if self.total is None or self.busy < self.total:
            self._wake(attempt)
            return True
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault(attempt, set()).add(granted)
        alarm = self._alarms.after(PATIENCE, partial(self._give_up, attempt, granted))
        try:
            await asyncio.wait([granted])
        finally:
            alarm.cancel()
            self._give_up(attempt, granted)
        return attempt in self._working

    def _wake(self, attempt: A) -> None:
        self._resting.pop(attempt, None)
        self._working.add(attempt)
        _answer(self._wanted.pop(attempt, ()))

    def _give_up(self, attempt: A, granted: asyncio.Future[None]) -> None:
        """End the wish of one branch; its attempt wants a slot for as long as another branch does."""
        wishes = self._wanted.get(attempt, set())
        wishes.discard(granted)
        if not wishes:
            self._wanted.pop(attempt, None)
        granted.cancel()

    def _freed(self) -> None:
        self.freed_at = self._alarms.boot()
        self._hand_out()
        self._on_free()

    def _hand_out(self) -> None:
        while self._wanted and (self.total is None or len(self._working) + self._reserved < self.total):
            self._wake(next(iter(self._wanted)))

    def clear(self) -> None:
        """Forget them all: their worker has lost them."""
        self._working.clear()
        self._resting.clear()
        wanted, self._wanted = self._wanted, {}
        for wishes in wanted.values():
            _answer(wishes)


def _answer(wishes: Iterable[asyncio.Future[None]]) -> None:
    for granted in wishes:
        if not granted.done():
            granted.set_result(None)
