"""The one source of time. All code that needs the time takes a Clock, so that tests can move time by hand.

Two kinds of time are kept apart. People read wall time, and deadlines are written in it; it may jump. The
boot clock only grows, also while the machine is suspended, and is comparable between processes of one boot: leases
are counted on it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import uuid
from datetime import UTC, datetime, timedelta
from typing import Protocol

from holdfast.model.deadline import as_seconds
from holdfast.model.errors import InvalidValue


class Clock(Protocol):
    """The time, as the engine and the stores read it."""

    @property
    def boot_id(self) -> str:
        """Name this boot of the machine: boot times are comparable only under the same id."""
        ...

    def now(self) -> datetime:
        """Return the wall time, in UTC with its zone, to the microsecond."""
        ...

    def boot(self) -> float:
        """Return seconds on a clock that never jumps and does not stop in suspend, where the system has one."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when that much time has passed."""
        ...


class ManualClock:
    """Time for tests: it stands still until a test moves it, and no code really sleeps."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        """Start at ``start``, with a boot clock at 0."""
        if start.utcoffset() is None:
            raise InvalidValue(f"the start {start} has no time zone; give it tzinfo=UTC")
        self._now = start.astimezone(UTC)
        # Counted apart from the boot clock: a reboot sets that one back while sleepers still wait.
        self._elapsed = timedelta()
        self._booted = timedelta()
        self._boot_id = str(uuid.uuid4())
        self._order = itertools.count()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []

    @property
    def boot_id(self) -> str:
        """See Clock."""
        return self._boot_id

    def now(self) -> datetime:
        """See Clock."""
        return self._now

    def boot(self) -> float:
        """See Clock."""
        return (self._elapsed - self._booted).total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has been advanced that far; for 0 or less, after one turn of the event loop."""
        if math.isnan(seconds):
            raise InvalidValue("cannot sleep for nan seconds")
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake = asyncio.get_running_loop().create_future()
        due = timedelta.max if math.isinf(seconds) else self._elapsed + timedelta(seconds=seconds)
        heapq.heappush(self._sleepers, (due, next(self._order), wake))
        await wake

    def advance(self, by: float | timedelta) -> None:
        """Let time pass, on both clocks, and wake the sleepers that are due, the earliest first."""
        passed = timedelta(seconds=as_seconds(by, what="advance"))
        self._elapsed += passed
        self._now += passed
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, wake = heapq.heappop(self._sleepers)
            # Skip a sleeper that was cancelled or whose loop is closed.
            if not wake.done() and not wake.get_loop().is_closed():
                wake.set_result(None)

    def jump_wall(self, by: float | timedelta) -> None:
        """Move only the wall time, forwards or backwards, as a correction by NTP does."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)

    def reboot(self) -> None:
        """Start a new boot: another id, the boot clock at 0, the wall time as it was."""
        self._boot_id = str(uuid.uuid4())
        self._booted = self._elapsed

    @property
    def sleepers(self) -> int:
        """The number of sleepers: a test waits for this before it advances the clock."""
        return sum(not wake.done() for _, _, wake in self._sleepers)
