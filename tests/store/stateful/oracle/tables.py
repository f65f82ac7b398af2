"""What a store keeps, as dicts of immutable records: a copy of the dicts is a copy of everything."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Self

from holdfast.model.approval import Approval
from holdfast.model.effect import Effect, Evidence
from holdfast.model.operations import UntilTime, Wait
from holdfast.model.pause import Pause
from holdfast.model.records import Account, Artifact, ArtifactLink, Checkpoint, Event, MemoryFact, PatchRecord
from holdfast.model.schedule import StoredSchedule
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import Transition
from holdfast.model.worker import Worker

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
    """Its steps are being undone, so that its deadline matters no more."""
    events_before: dict[str, int] = field(default_factory=dict)
    """The last number of each channel when it was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    worker: Worker
    expires: timedelta
    """On the boot clock."""


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
    limits: dict[str, int | None] = field(default_factory=dict)
    """By queue: how many of its tasks may be pending."""
    schedules: dict[str, StoredSchedule] = field(default_factory=dict)

    def copy(self) -> Self:
        return type(self)(**{table.name: dict(getattr(self, table.name)) for table in fields(self)})

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
