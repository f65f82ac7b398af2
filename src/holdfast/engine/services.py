"""What every attempt of a Holdfast shares."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.engine import liveness
from holdfast.engine.alarms import Alarms
from holdfast.engine.committer import Committer
from holdfast.engine.definition import Definitions
from holdfast.engine.storetime import StoreTime
from holdfast.engine.threads import DaemonThreads
from holdfast.engine.watcher import Watcher
from holdfast.model.clock import Clock
from holdfast.model.worker import Worker
from holdfast.store.base import StateStore


@dataclass(slots=True)
class Services:
    """The open store, and the machinery around it that lives as long as it is open."""

    store: StateStore
    clock: Clock
    definitions: Definitions
    committer: Committer = field(init=False)
    time: StoreTime = field(init=False)
    alarms: Alarms = field(init=False)
    watcher: Watcher = field(init=False)
    threads: DaemonThreads = field(init=False)
    is_gone: Callable[[str, Sequence[Worker]], bool] = field(init=False)
    """Says whether the process of a worker is proven to be over."""
    random: random.Random = field(default_factory=random.Random)
    """For jitter."""
    on_due: set[Callable[[datetime], None]] = field(default_factory=set)
    """Told when something becomes due later: a timer, a retry."""
    _left_behind: set[asyncio.Future[Any]] = field(default_factory=set)
    """Calls, and reports about them, that outlive the attempt they were made for."""
    _is_closed: bool = False

    def __post_init__(self) -> None:
        """Build it around the store."""
        self.committer = Committer(self.store)
        self.time = StoreTime(self.store, self.clock)
        self.alarms = Alarms(self.clock)
        self.watcher = Watcher(self.store)
        self.threads = DaemonThreads()
        self.is_gone = self._is_gone

    def note_due(self, at: datetime | None) -> None:
        """Tell the workers here that something will be due, so that they need not find out by looking."""
        if at is not None:
            for tell in self.on_due:
                tell(at)

    def keep(self, going: asyncio.Future[Any]) -> None:
        """Hold on to something that goes on by itself, until it is over or the store is closed."""
        self._left_behind.add(going)
        going.add_done_callback(self._left_behind.discard)

    def start(self, work: Coroutine[Any, Any, object]) -> bool:
        """Have this go on by itself, too. False, and it never begins, if the store is being closed.

        A thread ends when it likes: a loop that is about to end as well would never come to what it starts now.
        """
        if self._is_closed:
            work.close()
            return False
        self.keep(asyncio.ensure_future(work))
        return True

    def _is_gone(self, worker_id: str, workers: Sequence[Worker]) -> bool:
        one_machine = not self.store.capabilities.multi_machine
        return liveness.is_gone(worker_id, workers, self.clock.boot_id, one_machine=one_machine)

    async def close(self) -> None:
        """Stop it all, in the order that loses nothing."""
        self._is_closed = True
        for going in list(self._left_behind):
            going.cancel()
        await asyncio.gather(*self._left_behind, return_exceptions=True)
        await self.committer.close()
        await self.watcher.close()
        await self.alarms.close()
        self.threads.close()
