"""SkippingClock: time for tests that moves only by hand, and knows how far the next sleeper is."""

from __future__ import annotations

import heapq
from datetime import UTC, datetime, timedelta

from holdfast.model.clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The default start of a test's time: always the same, so that a run can be repeated."""

_TICK = timedelta(microseconds=1)


class SkippingClock(ManualClock):
    """A ManualClock that counts how often it was read and can jump from sleeper to sleeper."""

    def __init__(self, start: datetime = START) -> None:
        """Start at ``start``."""
        super().__init__(start)
        self.asked = 0
        """Goes up whenever code reads the time: working code does that all the time."""

    def now(self) -> datetime:
        """See Clock."""
        self.asked += 1
        return super().now()

    def boot(self) -> float:
        """See Clock."""
        self.asked += 1
        return super().boot()

    @property
    def elapsed(self) -> timedelta:
        """How much time has passed since the start."""
        return self._elapsed

    def ahead(self) -> timedelta | None:
        """Return how far the next sleeper's time is; None if there is no sleeper that would ever wake."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if not self._sleepers or self._sleepers[0][0] == timedelta.max:
            return None
        # A sleep shorter than the clock's resolution is due already, but the sleeper still has to be woken.
        return max(self._sleepers[0][0] - self._elapsed, _TICK)
