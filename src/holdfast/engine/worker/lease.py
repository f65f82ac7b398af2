"""The local end of a lease: how long this process may still act for the tasks it holds.

The time is counted on the boot clock, from *before* the call to the store. The store starts to count later, so the
lease ends here first. A process that was suspended or starved finds that its lease has ended, and does nothing more
until the store has renewed it.
"""

from __future__ import annotations

import asyncio

from holdfast.model.clock import Clock

MARGIN = 0.1
"""The share of a lease that is not used: it takes a moment to send a call."""


class LeaseClock:
    """The lease of one incarnation of a worker."""

    __slots__ = ("_clock", "_ended", "_renewed", "_until", "seconds", "worker_id")

    def __init__(self, worker_id: str, seconds: float, clock: Clock) -> None:
        """Start without any time: the store grants it."""
        self.worker_id = worker_id
        self.seconds = seconds
        self._clock = clock
        self._until = float("-inf")
        self._renewed: asyncio.Event | None = None
        self._ended = False

    def renew(self, asked_at: float) -> None:
        """Extend the lease, counted from ``asked_at``: the boot time before the call to the store."""
        self._until = max(self._until, asked_at + self.seconds * (1 - MARGIN))
        if self._renewed is not None:
            self._renewed.set()
            self._renewed = None

    @property
    def holds(self) -> bool:
        """Whether there is time left."""
        return self._clock.boot() < self._until

    def end(self) -> None:
        """End the lease, because its worker is dead. Callers of ``wait`` return."""
        self._ended = True
        if self._renewed is not None:
            self._renewed.set()

    async def wait(self) -> None:
        """Return when there is time left: at once, or when the store has renewed the lease. Return too when it ends."""
        while not self.holds and not self._ended:
            if self._renewed is None:
                self._renewed = asyncio.Event()
            await self._renewed.wait()
