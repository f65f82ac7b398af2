"""The store's time, without asking the store each time.

Deadlines and timers are compared with the clock that the store uses. Embedded stores use this process's clock. A
database server has its own clock: the engine asks for its time now and then, and counts on from there with the boot
clock.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model.clock import Clock
from holdfast.store.base import StateStore

ASK_AGAIN_AFTER = 30.0
"""Seconds. In that time, clocks drift apart by less than a millisecond."""


class StoreTime:
    """The current time of the store."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        """Use this process's clock until ``ask`` is called."""
        self._store = store
        self._clock = clock
        self._shared = not store.capabilities.multi_machine
        self._known: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the store's time, as precisely as it is known."""
        if self._known is None:
            return self._clock.now()
        then, boot = self._known
        return then + timedelta(seconds=self._clock.boot() - boot)

    def seconds_until(self, moment: datetime) -> float:
        """Return the seconds until a moment; negative if it has passed."""
        return (moment - self.now()).total_seconds()

    async def ask(self) -> None:
        """Ask the store for its time, if it has its own clock and the last answer is old."""
        if self._shared:
            return
        began = self._clock.boot()
        if self._known is not None and began - self._known[1] < ASK_AGAIN_AFTER:
            return
        then = await self._store.now()
        self._known = then, (began + self._clock.boot()) / 2
