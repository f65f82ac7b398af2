"""What can be asked of a store: filters, pages, counts, and a task with its whole journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from holdfast.model.approval import Approval
from holdfast.model.checks import check_moment
from holdfast.model.effect import Effect
from holdfast.model.records import Account, Checkpoint, PatchRecord, Reservation
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Which tasks: every part that is given must hold."""

    states: frozenset[TaskState] | None = None
    queue: str | None = None
    name: str | None = None
    agent_id: str | None = None
    parent_id: str | None = None
    owner: str | None = None
    key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    text: str | None = None
    """Found, ignoring case, in the name, agent, key or input."""

    def __post_init__(self) -> None:
        """Refuse a time without a zone."""
        check_moment("created_after", self.created_after)
        check_moment("created_before", self.created_before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """One page of a listing, and where the next one begins."""

    items: tuple[Item, ...]
    next: str | None
    """Pass as ``after`` to go on; None on the last page. Rows that appear meanwhile never shift a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A task with everything a worker needs to go on with it, read in one round trip at one moment."""

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
class Pruned:
    """What a prune deleted: one bounded batch."""

    tasks: int
    events: int
    artifacts: int
    more: bool
    """The batch was full: prune again."""
