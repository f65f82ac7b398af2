"""Services: the objects that every attempt of a Holdfast shares."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.engine.api.definition import Definitions
from holdfast.engine.runtime import log
from holdfast.engine.runtime.alarms import Alarms
from holdfast.engine.runtime.batcher import SHUTDOWN_TIMEOUT, Batcher
from holdfast.engine.runtime.committer import Committer
from holdfast.engine.runtime.feed_pump import FeedPump
from holdfast.engine.runtime.loop_turns import Turns
from holdfast.engine.runtime.permits import Permits
from holdfast.engine.runtime.store_retry import short_pauses
from holdfast.engine.runtime.store_time import StoreTime
from holdfast.engine.runtime.threads import DaemonThreads
from holdfast.engine.runtime.watcher import Watcher
from holdfast.engine.worker import liveness
from holdfast.model.clock import Clock
from holdfast.model.size import task_size
from holdfast.model.task import NewTask, Submitted
from holdfast.model.worker import Worker
from holdfast.process_fork import Owner
from holdfast.store.base import StateStore

MOST_SUBMITTED = 1000
"""Tasks in one transaction."""


@dataclass(slots=True)
class Services:
    """The open store, and the services around it that live until it is closed."""

    store: StateStore
    clock: Clock
    definitions: Definitions
    committer: Committer = field(init=False)
    submitter: Batcher[NewTask, Submitted] = field(init=False)
    time: StoreTime = field(init=False)
    alarms: Alarms = field(init=False)
    watcher: Watcher = field(init=False)
    feed: FeedPump = field(init=False)
    permits: Permits = field(init=False)
    threads: DaemonThreads = field(init=False)
    turns: Turns = field(default_factory=Turns)
    is_gone: Callable[[str, Sequence[Worker]], bool] = field(init=False)
    """Returns whether it is proven that the process of a worker has ended."""
    random: random.Random = field(default_factory=random.Random)
    """For jitter."""
    on_due: set[Callable[[datetime], None]] = field(default_factory=set)
    """Called with the time at which something becomes due: a timer, a retry."""
    _left_behind: set[asyncio.Future[Any]] = field(default_factory=set)
    """Calls, and the records of how they ended, that outlive their attempt."""
    _is_closed: bool = False
    owner: Owner = field(default_factory=lambda: Owner("the store"))

    def __post_init__(self) -> None:
        """Build the services around the store."""
        self.committer = Committer(self.store)
        outage = self.store.outage
        self.submitter = Batcher(
            self.store.submit, most=MOST_SUBMITTED, patience=short_pauses, size=task_size, outage=outage
        )
        self.submitter.callers = 2  # submissions often come together: a turn of the loop lets them join one batch
        self.time = StoreTime(self.store, self.clock)
        self.alarms = Alarms(self.clock)
        self.watcher = Watcher(self.store)
        self.feed = FeedPump(self.store, self.watcher)
        self.permits = Permits(self.store, self.clock, self.time, self.alarms, self.watcher)
        self.threads = DaemonThreads()
        self.is_gone = self._is_gone

    def note_due(self, at: datetime | None) -> None:
        """Notify the workers of this process that something will be due, so that they need not poll for it."""
        if at is not None:
            for notify in self.on_due:
                notify(at)

    def keep(self, going: asyncio.Future[Any]) -> None:
        """Keep a reference to background work until it ends. Closing the store cancels it."""
        self._left_behind.add(going)
        going.add_done_callback(self._left_behind.discard)
        if self._is_closed:
            going.cancel()

    def start(self, work: Coroutine[Any, Any, object]) -> bool:
        """Run this in the background. Return False, without starting it, if the store is being closed.

        An abandoned thread may end at any time. If the event loop is about to end, it would not run new work any more.
        """
        if self._is_closed:
            work.close()
            return False
        going = asyncio.create_task(work)
        going.add_done_callback(log.if_it_failed("work in the background failed"))
        self.keep(going)
        return True

    def _is_gone(self, worker_id: str, workers: Sequence[Worker]) -> bool:
        one_machine = not self.store.capabilities.multi_machine
        return liveness.is_gone(worker_id, workers, self.clock.boot_id, one_machine=one_machine)

    async def close(self) -> None:
        """Stop all services, in the order that loses nothing. A cancellation only shortens the waits."""
        self._is_closed = True
        async with AsyncExitStack() as closing:  # runs from the last line to the first, even if one of them raises
            closing.callback(self.threads.close)
            closing.push_async_callback(self.alarms.close)
            closing.push_async_callback(self.watcher.close)
            closing.push_async_callback(self.feed.close)
            closing.push_async_callback(self.committer.close)
            closing.push_async_callback(self.submitter.close)
            closing.push_async_callback(self.permits.close)
            await self._end_what_is_left()

    async def _end_what_is_left(self) -> None:
        for going in list(self._left_behind):
            going.cancel()
        if self._left_behind:
            _, still = await asyncio.wait(self._left_behind, timeout=SHUTDOWN_TIMEOUT)
            for going in still:
                log.logger.warning("%r was cancelled but does not end; the store is closed without waiting", going)
