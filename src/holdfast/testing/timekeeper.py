"""Timekeeper: moves a sandbox's time as soon as no code needs it to stand still.

There are two ways to move. A hop goes to the next sleeper. Workers poll their queue once a second, so three days would
take a quarter of a million hops. Therefore, when a hop has changed nothing, the idle worker is stopped and time leaps
to the next moment at which the store itself has work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from holdfast.testing.pulse import Pulse
from holdfast.testing.sandbox_worker import SandboxWorker
from holdfast.testing.skipping_clock import SkippingClock

QUIET = 0.002
"""Real seconds without any activity, after which time moves."""

TURNS = 20
"""Turns of the event loop that must pass in silence as well: on a busy machine, a pause in real time does not mean that
no code is about to run."""

IDLE_AFTER = 0.02
"""Real seconds after which code that reads the time but does nothing else counts as idle: hints from a store on disk
make a worker poll all the time."""


class Timekeeper:
    """Moves the clock, and starts the crew when there is work."""

    def __init__(self, clock: SkippingClock, sandbox_worker: SandboxWorker, pulse: Pulse, *, patience: float) -> None:
        """``patience``: real seconds that running code may be silent before time moves anyway."""
        self._clock = clock
        self._sandbox_worker = sandbox_worker
        self._pulse = pulse
        self._patience = patience
        self._frozen = 0
        self._target: datetime | None = None
        self._calm: list[asyncio.Future[None]] = []
        self._seen = -1
        """The pulse at the last move of time: if it is still the same at the next, the move changed nothing."""
        self._rested_at: int | None = None
        """The pulse when the crew was stopped with no work ahead; any later beat starts it again."""

    # What a test asks for

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop time for a block."""
        self._frozen += 1
        try:
            yield
        finally:
            self._frozen -= 1

    async def idle(self) -> None:
        """Return once all work that needs no time is done."""
        with self.frozen():
            calm = asyncio.get_running_loop().create_future()
            self._calm.append(calm)
            await calm

    async def advance(self, by: timedelta) -> None:
        """Let exactly this much time pass, and wait for the work that becomes due."""
        with self.frozen():
            self._target = self._clock.now() + by
            try:
                await self.idle()
            finally:
                self._target = None

    # Keeping time

    async def run(self) -> None:
        """Move time until cancelled."""
        while True:
            await self._until_quiet()
            if not self._sandbox_worker.is_at_work and self._rested_at != self._pulse.beats:
                self._rested_at = None
                await self._sandbox_worker.start()
                self._pulse.beat()
            elif self._may_move():
                await self._move()
            elif self._calm:
                self._wake_idle()

    async def _until_quiet(self) -> None:
        """Return when no code runs that a move of time could disturb."""
        while True:
            beats, asked = self._pulse.beats, self._clock.asked
            await asyncio.sleep(QUIET)
            if beats != self._pulse.beats:
                continue
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if beats != self._pulse.beats or self._pulse.is_asking:
                continue
            is_silent = asked == self._clock.asked or self._pulse.silence >= IDLE_AFTER
            if is_silent and (not self._sandbox_worker.is_busy or self._pulse.silence >= self._patience):
                return

    def _may_move(self) -> bool:
        if self._target is not None:
            return self._clock.now() < self._target
        return not self._frozen

    def _wake_idle(self) -> None:
        calm, self._calm = self._calm, []
        for waiting in calm:
            if not waiting.done():
                waiting.set_result(None)

    async def _move(self) -> None:
        if self._seen == self._pulse.beats and await self._sandbox_worker.is_idle():
            await self._jump_to_next()
        else:
            self._move_to_next()
        self._seen = self._pulse.beats

    def _move_to_next(self) -> None:
        ahead = self._clock.ahead()
        if ahead is None and self._target is not None:
            ahead = self._target - self._clock.now()
        if ahead is not None:
            self._advance(ahead)

    async def _jump_to_next(self) -> None:
        beats = self._pulse.beats
        await self._sandbox_worker.rest(self.run_in_time)
        due = await self._sandbox_worker.look_ahead(until_then=self._target is not None)
        await self._until_quiet()
        if beats != self._pulse.beats:
            return  # new work arrived meanwhile
        if due is None:
            self._rested_at = beats
            return
        ahead = due - self._clock.now()
        if ahead > timedelta():
            self._advance(ahead)
            await self._until_quiet()  # shorter sleepers wake up before work continues

    def _advance(self, by: timedelta) -> None:
        if self._target is not None:
            by = min(by, self._target - self._clock.now())
        self._clock.advance(by)

    async def run_in_time(self, work: Coroutine[Any, Any, None]) -> None:
        """Await something that may itself wait for time to pass."""
        task = asyncio.create_task(work)
        while not (await asyncio.wait([task], timeout=self._patience))[0]:
            if (ahead := self._clock.ahead()) is not None:
                self._clock.advance(ahead)
        await task
