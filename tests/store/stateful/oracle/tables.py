"""What a store keeps, as dicts of immutable records: a copy of the dicts is a copy of everything."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Self

from holdfast.model.approval import Approval
from holdfast.model.effect import Effect, Evidence
from holdfast.model.feed import FeedRetention
from holdfast.model.flow_limit import Limit, PermitRequest
from holdfast.model.operations import UntilTime, Wait
from holdfast.model.pause import Pause
from holdfast.model.queue_settings import QueueSettings
from holdfast.model.records import Account, Artifact, ArtifactLink, Checkpoint, Event, MemoryFact, PatchRecord
from holdfast.model.schedule import StoredSchedule
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import Transition
from holdfast.model.worker import Worker
from tests.store.stateful.oracle.feeding import REPORTS, Report, Watched

NOT_READY, READY, READY_ALONE = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task and what a store knows about it beside the record."""

    task: Task
    input_digest: str
    search: str
    ready: int = NOT_READY
    claim: int = 0
    """The number of the claim that got it; 0 where it was acquired, or is not held."""
    alone: bool = False
    """The lease that stands on it was granted to a worker that runs nothing else."""
    undoing: bool = False
    """Its steps are being undone, so that its deadline no longer counts."""
    turn: int | None = None
    """Of a task of a fair queue, once it has one."""
    events_before: dict[str, int] = field(default_factory=dict)
    """The last number of each channel when it was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    worker: Worker
    expires: timedelta
    """On the boot clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitRow:
    """A request of a step."""

    request: PermitRequest
    place: int
    granted_at: datetime | None = None
    uses: dict[str, tuple[datetime | None, int]] = field(default_factory=dict)
    """By key: until when it counts, and with how many tokens."""
    settles_at: datetime | None = None

    @property
    def keys(self) -> list[str]:
        return sorted(set(self.request.keys))


ReservationKey = tuple[str, str, str, str, int]
"""Task, account, meter, step key, fence."""

SubjectKey = tuple[str, str, str | None]
"""Entity, attribute, the other entity of a relation."""


@dataclass
class Tables:
    tasks: dict[str, TaskRow] = field(default_factory=dict)
    transitions: dict[str, tuple[Transition, ...]] = field(default_factory=dict)
    waits: dict[str, tuple[Wait, ...]] = field(default_factory=dict)
    joins: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """By (parent, key of its wait): the children that have not ended."""
    steps: dict[tuple[str, int, str], Step] = field(default_factory=dict)
    effects: dict[tuple[str, str], Effect] = field(default_factory=dict)
    evidence: dict[tuple[str, str], tuple[Evidence, ...]] = field(default_factory=dict)
    patches: dict[str, tuple[PatchRecord, ...]] = field(default_factory=dict)
    checkpoints: dict[tuple[str, int], Checkpoint] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)
    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    reservations: dict[ReservationKey, int] = field(default_factory=dict)
    requests: dict[tuple[str, str], None] = field(default_factory=dict)
    links: dict[tuple[str, str], ArtifactLink] = field(default_factory=dict)
    artifacts: dict[str, tuple[Artifact, bytes]] = field(default_factory=dict)
    events: dict[str, tuple[Event, ...]] = field(default_factory=dict)
    event_numbers: dict[str, int] = field(default_factory=dict)
    """The last number given out on each channel; outlives its events."""
    facts: dict[str, MemoryFact] = field(default_factory=dict)
    marks: dict[SubjectKey, str] = field(default_factory=dict)
    workers: dict[str, WorkerRow] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    """Their settings; what is counted is counted again each time."""
    turns: dict[str, int] = field(default_factory=dict)
    """The highest turn that was claimed of a fair queue."""
    last_turns: dict[tuple[str, tuple[str | None, int, bool]], int] = field(default_factory=dict)
    """By queue and lane."""
    prunes_at: dict[str, datetime] = field(default_factory=dict)
    """When the next sweep looks what a queue with a retention keeps no longer."""
    flow_limits: dict[str, Limit] = field(default_factory=dict)
    keys: dict[str, datetime | None] = field(default_factory=dict)
    """Every key that is known, and until when it is closed."""
    uses: dict[tuple[str, datetime], tuple[int, int]] = field(default_factory=dict)
    """By key and the moment until which it counts: calls and tokens."""
    permits: dict[str, PermitRow] = field(default_factory=dict)
    schedules: dict[str, StoredSchedule] = field(default_factory=dict)
    feed: dict[int, Report] = field(default_factory=dict)
    feed_settings: dict[None, FeedRetention] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, report in REPORTS.items():
            setattr(self, name, Watched(getattr(self, name), self, report))

    def copy(self) -> Self:
        return type(self)(**{table.name: dict(getattr(self, table.name)) for table in fields(self)})

    @property
    def feed_retention(self) -> FeedRetention:
        return self.feed_settings.get(None, FeedRetention())

    def task(self, task_id: str) -> Task:
        return self.tasks[task_id].task

    def change_task(self, task_id: str, **changes: object) -> Task:
        """Replace fields of the task's record."""
        row = self.tasks[task_id]
        task = replace(row.task, **changes)  # type: ignore[arg-type]
        self.tasks[task_id] = replace(row, task=task)
        return task

    def change_row(self, task_id: str, **changes: object) -> None:
        """Replace what stands beside the task's record."""
        self.tasks[task_id] = replace(self.tasks[task_id], **changes)  # type: ignore[arg-type]

    def wake_at(self, task_id: str) -> datetime | None:
        return min((wait.at for wait in self.waits.get(task_id, ()) if isinstance(wait, UntilTime)), default=None)
