"""What every attempt of a Holdfast shares."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.engine.alarms import Alarms
from holdfast.engine.committer import Committer
from holdfast.engine.definition import Definitions
from holdfast.engine.storetime import StoreTime
from holdfast.engine.threads import DaemonThreads
from holdfast.engine.watcher import Watcher
from holdfast.model.clock import Clock
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
    random: random.Random = field(default_factory=random.Random)
    """For jitter."""
    on_due: set[Callable[[datetime], None]] = field(default_factory=set)
    """Told when something becomes due later: a timer, a retry."""

    def __post_init__(self) -> None:
        """Build it around the store."""
        self.committer = Committer(self.store)
        self.time = StoreTime(self.store, self.clock)
        self.alarms = Alarms(self.clock)
        self.watcher = Watcher(self.store)
        self.threads = DaemonThreads()

    def note_due(self, at: datetime | None) -> None:
        """Tell the workers here that something will be due, so that they need not find out by looking."""
        if at is not None:
            for tell in self.on_due:
                tell(at)

    async def close(self) -> None:
        """Stop it all, in the order that loses nothing."""
        await self.committer.close()
        await self.watcher.close()
        await self.alarms.close()
        self.threads.close()
