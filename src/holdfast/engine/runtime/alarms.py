"""Alarms: timed callbacks for all attempts of a process, through one sleeping asyncio task.

Ten thousand tasks with a deadline need ten thousand entries here, instead of ten thousand sleeping coroutines. The time
comes from the Clock, so that a test can skip it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from holdfast.model.clock import Clock
from holdfast.model.errors import StoreClosed
from holdfast.redaction import make_logger

_log = make_logger(__name__)

_FORGET_AT = 64
"""How many cancelled alarms may pile up before they are removed."""


class Alarm:
    """One scheduled callback."""

    __slots__ = ("_alarms", "callback", "is_waited_for")

    def __init__(self, alarms: Alarms, callback: Callable[[], None], *, is_waited_for: bool) -> None:
        """Only Alarms creates these."""
        self._alarms = alarms
        self.callback: Callable[[], None] | None = callback
        self.is_waited_for = is_waited_for

    def cancel(self) -> None:
        """Cancel the callback. Do nothing if it has run already."""
        if self.callback is not None:
            self.callback = None
            self._alarms.forget_one()


class Alarms:
    """All alarms of one Holdfast."""

    def __init__(self, clock: Clock) -> None:
        """Start without alarms."""
        self._clock = clock
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeps_until = float("inf")
        self._is_closed = False

    def boot(self) -> float:
        """Return the seconds since the machine started, the time that alarms use."""
        return self._clock.boot()

    def after(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        """Run ``callback`` after so many seconds. It never runs inside this call, and never after ``close``."""
        return self._set(seconds, Alarm(self, callback, is_waited_for=False))

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Return when the event is set. After so many seconds the alarm itself sets it."""
        alarm = self._set(seconds, Alarm(self, event.set, is_waited_for=True))
        try:
            await event.wait()
        finally:
            alarm.cancel()
        self._refuse_if_closed()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        await self.wait(asyncio.Event(), seconds)

    def _set(self, seconds: float, alarm: Alarm) -> Alarm:
        self._refuse_if_closed()
        due = self._clock.boot() + max(seconds, 0.0)
        heapq.heappush(self._heap, (due, next(self._order), alarm))
        if due < self._sleeps_until or self._sleeper is None or self._sleeper.done():
            self._restart_sleep(due)
        return alarm

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise StoreClosed("the store was closed before this wait was over; wait inside the block that opened it")

    def forget_one(self) -> None:
        """Count a cancelled alarm. When many have piled up, remove them."""
        self._cancelled += 1
        if self._cancelled > _FORGET_AT and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _restart_sleep(self, due: float) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
        self._sleeps_until = due
        self._sleeper = asyncio.create_task(self._fire(), name="holdfast-alarms")

    async def _fire(self) -> None:
        while self._heap:
            due = self._sleeps_until = self._heap[0][0]
            if (ahead := due - self._clock.boot()) > 0:
                await self._clock.sleep(ahead)
                continue
            _, _, alarm = heapq.heappop(self._heap)
            callback, alarm.callback = alarm.callback, None
            if callback is not None:
                try:
                    callback()
                except Exception:  # noqa: BLE001 - a failed callback must not stop the alarms behind it
                    _log.exception("the callback of an alarm failed")
        self._sleeps_until = float("inf")

    async def close(self) -> None:
        """Run no more callbacks. Callers of ``wait`` and ``sleep`` get StoreClosed instead of waiting for ever."""
        self._is_closed = True
        left, self._heap = self._heap, []
        for _, _, alarm in left:
            if alarm.is_waited_for and alarm.callback is not None:
                alarm.callback()
        if self._sleeper is not None:
            self._sleeper.cancel()
            await asyncio.gather(self._sleeper, return_exceptions=True)
            self._sleeper = None
