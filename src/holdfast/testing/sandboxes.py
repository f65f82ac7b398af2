"""Sandbox: an application's own tasks in a separate store, with time that skips and workers that crash on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from holdfast.engine.api.handle import Handle
from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import HoldfastError, InvalidValue, NotFound
from holdfast.settings import DEFAULT_LEASE
from holdfast.store.base import ANYTHING, StateStore
from holdfast.store.url import make_store
from holdfast.testing.crashes import Crash, When
from holdfast.testing.killable import KillableCommitter, Stage
from holdfast.testing.pulse import Pulse
from holdfast.testing.sandbox_worker import SandboxWorker
from holdfast.testing.skipping_clock import START, SkippingClock
from holdfast.testing.timekeeper import Timekeeper
from holdfast.testing.trace import Trace

PATIENCE = 0.2
"""Real seconds that running code may be silent before time moves anyway."""


class Sandbox:
    """A test's view of its sandbox; made by ``sandbox(hold)``."""

    def __init__(
        self, hold: Holdfast, clock: SkippingClock, stage: Stage, sandbox_worker: SandboxWorker, keeper: Timekeeper
    ) -> None:
        """Made by ``sandbox``."""
        self.hold = hold
        self.clock = clock
        self._stage = stage
        self._sandbox_worker = sandbox_worker
        self._keeper = keeper

    # Time

    @property
    def elapsed(self) -> timedelta:
        """The sandbox's time that has passed since it was opened."""
        return self.clock.elapsed

    def frozen(self) -> AbstractContextManager[None]:
        """Let time stand still for a block: ``with sandbox.frozen():``. Work continues as far as it needs no time."""
        return self._keeper.frozen()

    async def idle(self) -> None:
        """Return once everything that needs no time to pass has been done."""
        await self._keeper.idle()

    async def advance(self, by: float | timedelta) -> None:
        """Let exactly this much time pass, also while it is frozen; return once everything due in it has been done."""
        await self._keeper.advance(timedelta(seconds=as_seconds(by, what="advance")))

    # Crashes

    def crash(self, step: str, *, when: When = "after_effect", times: int = 1) -> Crash:
        """Kill the worker when this step reaches ``when``; a new worker takes over once the lease has expired.

        ``before_effect``: its function has not run. ``after_effect``: it ran, and nothing was recorded.
        ``after_commit``: its result is durable. ``step`` is the step's key: the second use of a name is ``name#2``.
        With ``times``, also when it gets there again. If the crash does not happen, the test fails.
        """
        return self._stage.plan.at_step(step, when, times)

    def crash_at_commit(self, number: int, *, durable: bool) -> Crash:
        """Kill the worker at its n-th Commit, counted from 1 over all tasks: once it is ``durable``, or just before."""
        return self._stage.plan.at_commit(number, durable=durable)

    def crash_now(self) -> None:
        """Kill the worker at once."""
        if not self._sandbox_worker.kill():
            raise HoldfastError(
                "there is no worker to kill: the last one died, or was stopped because there is no work; "
                "await sandbox.idle() first"
            )

    # Looking

    @property
    def commits(self) -> int:
        """How many Commits the workers have sent, or were about to send when they died."""
        return self._stage.recorder.commits

    async def trace(self, task: Handle[Any] | str) -> Trace:
        """Return what a task went through: steps that ran and replayed, states, time."""
        task_id = task if isinstance(task, str) else task.id
        found = await self.hold.store.get(task_id)
        if found is None:
            raise NotFound("task", task_id)
        return self._stage.recorder.trace(found, await self.hold.store.history(task_id))


@asynccontextmanager
async def sandbox(
    hold: Holdfast,
    *,
    url: str = "memory://",
    start: datetime = START,
    queues: Sequence[str] | str | None = None,
    concurrency: int = 100,
    lease: float = DEFAULT_LEASE,
    patience: float = PATIENCE,
) -> AsyncIterator[Sandbox]:
    """Run an application's own tasks in a test.

    Until the block ends, ``hold`` is open on an empty store in memory (or on ``url``), its time begins at ``start`` and
    skips all waiting, and one worker does the work. It serves ``queues``, by default those of the defined tasks.
    Afterwards ``hold`` is as before. If a step is silent for ``patience`` real seconds, the sandbox assumes that it
    hangs: time moves on, so that its timeout is reached.

    At its end the block raises CrashDidNotHappen if a requested crash never happened.
    """
    stage, clock = Stage(), SkippingClock(start)
    _refuse_foreign_time(url, clock)
    with hold.redirected(url, clock=clock):
        async with hold:
            services = hold.services
            services.committer = KillableCommitter(services.store, stage)
            services.is_gone = lambda worker_id, _: worker_id in stage.dead
            listed = [queues] if isinstance(queues, str) else queues
            sandbox_worker = SandboxWorker(hold, stage, queues=listed, concurrency=concurrency, lease=lease)
            keeper = Timekeeper(clock, sandbox_worker, stage.pulse, patience=patience)
            async with _kept(keeper, sandbox_worker), _heard(services.store, stage.pulse):
                yield Sandbox(hold, clock, stage, sandbox_worker, keeper)
    stage.plan.check(stage.recorder.steps, stage.recorder.commits)


@asynccontextmanager
async def _kept(keeper: Timekeeper, sandbox_worker: SandboxWorker) -> AsyncIterator[None]:
    """Run a worker and move time until the block ends."""
    await sandbox_worker.start()
    keeping = asyncio.create_task(keeper.run(), name="holdfast-timekeeper")
    try:
        yield
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await sandbox_worker.rest(keeper.run_in_time)


@asynccontextmanager
async def _heard(store: StateStore, pulse: Pulse) -> AsyncIterator[None]:
    """Beat the pulse at every change of the store, by any process, until the block ends."""

    async def listen() -> None:
        async with store.listen() as listener:
            while True:
                # A hint without a topic may be just a heartbeat. A hint that matters to a task names the task.
                if await listener.wait() - {ANYTHING}:
                    pulse.beat()

    listening = asyncio.create_task(listen(), name="holdfast-sandbox-hints")
    try:
        yield
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


def _refuse_foreign_time(url: str, clock: SkippingClock) -> None:
    if make_store(url, clock=clock).capabilities.multi_machine:
        raise InvalidValue(
            f"{url} uses the time of its server, which cannot be skipped; use memory://, json: or sqlite: in a sandbox"
        )
