"""Evidence: everything a check may judge by, as it was found at one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.model.approval import Approval
from holdfast.model.doubt import Doubt
from holdfast.model.errors import HoldfastError
from holdfast.model.flow_limit import LimitUse
from holdfast.model.pause import Pause
from holdfast.model.queries import QueueCounts, Vitals
from holdfast.model.queue_settings import QueueSettings
from holdfast.model.schedule import Schedule
from holdfast.model.task import Task
from holdfast.model.worker import Worker, WorkerState

A_DAY = timedelta(days=1)
KEPT = timedelta(days=30)
"""What ended before that is rarely looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedApplication:
    """The application that was named, and how its import went."""

    target: str
    """Where it should be: module:attribute."""
    error: str | None = None
    """Why it could not be imported."""
    not_imported: str | None = None
    """Why it was not even tried: to import a module is to run its code."""
    url: str | None = None
    """The store it uses."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What its code says about how to open that store."""
    queues: Sequence[str] = ()
    tasks: Sequence[str] | None = None
    """The names of the tasks it defines; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What was read from an open store."""

    vitals: Vitals
    now: datetime
    """By the store's clock."""
    local: datetime
    """By this machine's, at the same moment."""
    workers: Sequence[Worker]
    """Those that are not dead."""
    held_by_silent: Mapping[str, int] = field(default_factory=dict)
    """How many tasks each silent worker still holds, by its id."""
    queues: Sequence[QueueCounts] = ()
    pauses: Sequence[Pause] = ()
    queue_settings: Sequence[QueueSettings] = ()
    limits: Sequence[LimitUse] = ()
    """How the keys of limits stand."""
    pending: Sequence[Task] = ()
    """The oldest of them."""
    running: Sequence[Task] = ()
    """The oldest of them."""
    poisoned: int = 0
    failed_today: int = 0
    prunable: int = 0
    approvals: Sequence[Approval] = ()
    """The open ones."""
    doubts: Sequence[Doubt] = ()
    outside: Mapping[str, int] = field(default_factory=dict)
    """How many pending tasks of each queue are for agents that claim over MCP."""
    by_hand: Mapping[str, int] = field(default_factory=dict)
    """How many of each queue were saved by hand: no worker claims them."""
    schedules: Sequence[Schedule] = ()
    cut: Collection[str] = ()
    """Which of pending, running, failed, approvals and doubts were not read completely."""

    def is_silent(self, worker: Worker) -> bool:
        """Return whether a worker's lease is over, though no sweep has declared it dead yet."""
        return self.now - worker.seen_at > timedelta(seconds=worker.lease)

    @property
    def at_work(self) -> list[Worker]:
        """The workers that claim tasks, and so look after those of the dead."""
        return [
            worker
            for worker in self.workers
            if worker.state is WorkerState.LIVE and not self.is_silent(worker) and not is_agent(worker)
        ]


def is_agent(worker: Worker) -> bool:
    """Return whether it is an agent outside, which holds the one task that it claimed over MCP."""
    return worker.details.get("queues") == [] == worker.details.get("tasks")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEvidence:
    """Everything that a diagnosis judges by."""

    url: str
    settings_error: str | None = None
    """Why the settings cannot be read."""
    unknown_variables: Mapping[str, str | None] = field(default_factory=dict)
    python: str = ""
    system: str = ""
    drivers: Mapping[str, str] = field(default_factory=dict)
    """The versions of database drivers that are installed."""
    extras: Mapping[str, bool] = field(default_factory=dict)
    """Which optional parts are installed."""
    file: Path | None = None
    """Where the store is, if it is a file."""
    file_system: str | None = None
    """The type of file system that ``file`` is on, where it can be found out."""
    free_bytes: int | None = None
    """What is left on that disk."""
    schema: tuple[int, int] | None = None
    """The schema that was found before the store was opened, and the one of this version."""
    is_wal: bool = True
    """Of a SQLite file, before it was opened: opening would switch it."""
    failure: HoldfastError | None = None
    """Why the store could not be opened."""
    inside: Inside | None = None
    """None where it was not opened."""
    application: NamedApplication | None = None

    @property
    def has_other_schema(self) -> bool:
        """Whether opening the store would change it, or be refused."""
        return self.schema is not None and self.schema[0] != self.schema[1]
