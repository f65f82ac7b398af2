"""The slots of a worker: an attempt has a slot while it works.

An attempt has a slot from its start until only its last Commit is left to do. While it only waits for something outside
the task, it gives the slot back. It is then a resident, which costs only memory. It takes a slot again before it does
anything new, and has priority over tasks that are still in the queue.
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
"""Seconds that an attempt waits for a slot. After that, another worker may have its task."""


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
        """``total`` None means no limit; ``on_free`` is called whenever a slot may be free."""
        self.total = total
        self.freed_at = alarms.boot()
        """When a slot last became free, on the boot clock."""
        self._alarms = alarms
        self._on_free = on_free
        self.is_closing = False
        """The worker stops: no further attempt may rest on it."""
        self._reserved = 0
        self._working: set[A] = set()
        self._resting: dict[A, float] = {}
        """Resting attempts and since when they rest, on the boot clock; the longest first."""
        self._wanted: dict[A, set[asyncio.Future[None]]] = {}
        """The attempts that want a slot again, in the order of their requests, and their branches that wait for it."""

    @property
    def busy(self) -> int:
        """How many slots are taken, reserved, or wanted by attempts that have given theirs back."""
        return len(self._working) + len(self._wanted) + self._reserved

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """Keep so many slots free for tasks that are being claimed, until the block ends."""
        self._reserved += count
        try:
            yield
        finally:
            self._reserved -= count
            self._hand_out()

    @property
    def free(self) -> int | None:
        """How many slots nothing has or wants; None: any number."""
        return None if self.total is None else self.total - self.busy

    def keep(self, count: int) -> None:
        """Keep so many slots free for attempts that rest, while the store is asked for their permits."""
        self._reserved += count

    def let_go(self, count: int) -> None:
        """Leave kept slots to others, or to the attempts that ``wake`` has given them to."""
        self._reserved -= count
        self._hand_out()
        if self.total is None or self.busy < self.total:
            self._on_free()

    def take(self, attempt: A) -> None:
        """Give a slot to an attempt that starts."""
        self._working.add(attempt)

    def leave(self, attempt: A) -> None:
        """Free the slot of an attempt that needs it no more, or that has left already and is over now."""
        if attempt in self._working or attempt in self._resting:
            self._working.discard(attempt)
            self._resting.pop(attempt, None)
            self._wanted.pop(attempt, None)  # a branch that still waits for a slot gives up after PATIENCE
            self._freed()
        else:
            self._on_free()

    def rest(self, attempt: A) -> None:
        """Give the slot of an attempt that only waits to other attempts."""
        if attempt in self._working:
            self._working.discard(attempt)
            self._resting[attempt] = self._alarms.boot()
            self._freed()

    def resting(self, seconds: float = 0.0) -> list[A]:
        """Return the attempts that gave their slots back at least so many seconds ago; the longest first."""
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
        """Return True when an attempt that rested has a slot again; False if no slot became free in time.

        Several branches of the attempt may ask. They wait for one slot together, and get it together.
        """
        if self.total is None or self.busy < self.total:
            self.wake(attempt)
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

    def wake(self, attempt: A) -> None:
        """Give a slot to an attempt that rests."""
        self._resting.pop(attempt, None)
        self._working.add(attempt)
        _answer(self._wanted.pop(attempt, ()))

    def _give_up(self, attempt: A, granted: asyncio.Future[None]) -> None:
        """End the wait of one branch. Its attempt still wants a slot while another branch waits."""
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
            self.wake(next(iter(self._wanted)))

    def clear(self) -> None:
        """Remove all attempts: their worker has lost them."""
        self._working.clear()
        self._resting.clear()
        wanted, self._wanted = self._wanted, {}
        for wishes in wanted.values():
            _answer(wishes)


def _answer(wishes: Iterable[asyncio.Future[None]]) -> None:
    for granted in wishes:
        if not granted.done():
            granted.set_result(None)
