"""The store's time, without asking the store each time.

Deadlines and timers are compared with the clock the store goes by. Embedded stores share this process's clock. A
database server has its own: its time is asked for now and then, and counted on with the boot clock in between.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model.clock import Clock
from holdfast.store.base import StateStore

ASK_AGAIN_AFTER = 30.0
"""Seconds: clocks drift apart by less than a millisecond in that time."""


class StoreTime:
    """What time it is for the store."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        """Trust this process's clock until ``ask`` was called."""
        self._store = store
        self._clock = clock
        self._shared = not store.capabilities.multi_machine
        self._known: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the store's time, as well as it is known."""
        if self._known is None:
            return self._clock.now()
        then, boot = self._known
        return then + timedelta(seconds=self._clock.boot() - boot)

    def seconds_until(self, moment: datetime) -> float:
        """Return how far away a moment is; negative when it has passed."""
        return (moment - self.now()).total_seconds()

    async def ask(self) -> None:
        """Ask the store, if it has a clock of its own and the last answer is old."""
        if self._shared:
            return
        began = self._clock.boot()
        if self._known is not None and began - self._known[1] < ASK_AGAIN_AFTER:
            return
        then = await self._store.now()
        self._known = then, (began + self._clock.boot()) / 2
