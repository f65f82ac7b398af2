"""Queries on a store: filters, pages, counts, a task with its whole journal, and the health of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from holdfast.model.approval import Approval
from holdfast.model.checks import check_moment
from holdfast.model.effect import Effect
from holdfast.model.labels import check_labels
from holdfast.model.records import Account, Checkpoint, PatchRecord, Reservation
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

Item = TypeVar("Item")


class Noun(StrEnum):
    """The kinds of things with an id that people type."""

    TASK = "task"
    APPROVAL = "approval"
    EFFECT = "effect"
    WORKER = "worker"
    FACT = "fact"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Which tasks: every part that is given must hold."""

    states: frozenset[TaskState] | None = None
    queue: str | None = None
    name: str | None = None
    agent_id: str | None = None
    parent_id: str | None = None
    owner: str | None = None
    resting: bool | None = None
    """Whether it only waits, although it keeps its worker."""
    key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    ended_before: datetime | None = None
    """A task that has not ended never matches."""
    text: str | None = None
    """Found, ignoring case, in the name, agent, key or input."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """It has all of these. The first one leads: an index has its tasks by age, so put the rarest first."""

    def __post_init__(self) -> None:
        """Refuse a time without a zone, and labels that no task can have."""
        check_moment("created_after", self.created_after)
        check_moment("created_before", self.created_before)
        check_moment("ended_before", self.ended_before)
        check_labels(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """One page of a listing, and where the next one begins."""

    items: tuple[Item, ...]
    next: str | None
    """Pass it as ``after`` for the next page; None on the last page. New rows never shift a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A task with everything a worker needs to continue it, read in one round trip at one moment."""

    task: Task
    steps: tuple[Step, ...]
    """By position."""
    effects: tuple[Effect, ...]
    patches: tuple[PatchRecord, ...]
    """After the newest undamaged checkpoint."""
    checkpoint: Checkpoint | None
    approvals: tuple[Approval, ...]
    accounts: tuple[Account, ...]
    reservations: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts of a whole store."""

    tasks: Mapping[TaskState, int] = field(default_factory=dict)
    workers: int = 0
    open_approvals: int = 0
    doubts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """The tasks of one queue that have not ended; each is counted once."""

    name: str
    ready: int
    """Pending, and due."""
    delayed: int
    """Pending, and not due yet."""
    running: int
    waiting: int
    review: int
    oldest_ready_at: datetime | None
    """When the task that has been due for longest became due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """The health of a store, for a person who checks it."""

    backend: str
    """A name for people: SQLite, PostgreSQL, memory, JSON files."""
    version: str
    """The version of the library or of the server."""
    schema: int
    """The number of the schema in the store."""
    bytes: int
    """Its size on disk; 0 for memory."""
    rows: Mapping[str, int]
    """How many tasks, steps, events, artifacts, facts and workers are kept."""
    exact_rows: bool
    """The rows were counted, not estimated."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that durability and speed depend on, as the database spells them."""
    oldest_snapshot_seconds: float | None = None
    """The age of the oldest transaction for which the database must keep deleted rows."""
    problems: tuple[str, ...] = ()
    """Damage that was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a prune deleted: one bounded batch."""

    tasks: int
    events: int
    artifacts: int
    more: bool
    """The batch was full: prune again."""
