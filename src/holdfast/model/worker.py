"""Workers and leases: who works on what, and until when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.model.checks import check_integer, check_name
from holdfast.model.errors import InvalidValue
from holdfast.model.ids import new_id
from holdfast.model.task import SCOPED_KEYS, Task
from holdfast.model.transitions import TaskState

ALONE_AFTER = 2
"""After this many worker deaths a task runs only on a worker that runs nothing else. One death is a reboot or a
deploy, and making every neighbour of a killed worker run alone would stop the house."""

POISON_AFTER = 3
"""After this many deaths of workers that ran nothing else, the task is set aside as poison."""

QUIET_FOR = 60.0
"""Seconds that a task must have rested before the death of its worker does not count: whatever its code does beside its
wait may be what kills the worker."""


SHORTEST_LEASE, LONGEST_LEASE = 0.01, 86_400.0
"""Seconds. Shorter could never be renewed in time; longer would strand a dead worker's tasks for days."""


class WorkerState(StrEnum):
    """Whether a worker may claim."""

    LIVE = "live"
    DRAINING = "draining"
    """Finishes what it has and claims nothing more."""
    DEAD = "dead"
    """Its lease ran out, or it retired. Final: a process that comes back registers a new incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorker:
    """One incarnation of a worker process, about to register."""

    id: str = field(default_factory=new_id)
    """Fresh per process start: a restart under an old id would renew its dead predecessor's lease."""
    label: str = "worker"
    """For people; two workers may share it."""
    lease: float = 30.0
    """Seconds it may stay silent before its tasks are taken back."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Host, pid, queues, concurrency: whatever helps a person find the process."""

    def __post_init__(self) -> None:
        """Refuse a lease that could never be renewed in time."""
        check_name("worker id", self.id)
        check_name("worker label", self.label)
        if not SHORTEST_LEASE <= self.lease <= LONGEST_LEASE:
            raise InvalidValue(
                f"a lease of {self.lease} s makes no sense; choose {SHORTEST_LEASE} to {LONGEST_LEASE} seconds"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker as it is stored."""

    id: str
    label: str
    lease: float
    state: WorkerState
    claims: int
    """The number of its last claim that found something."""
    details: Mapping[str, Any]
    started_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One task held by one worker under one fence."""

    task_id: str
    owner: str
    fence: int
    claim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A request for work. Numbered, so that one whose answer was lost can be asked again."""

    worker_id: str
    number: int
    """Counts up from 1 within the worker. Sending a number again returns what it got the first time."""
    limit: int
    queues: Sequence[str] = ("default",)
    names: Sequence[str] = ()
    """The task definitions this worker knows; empty claims nothing."""
    alone: bool = False
    """The worker runs nothing else and asks for one suspect. Without it, no suspect is handed out."""
    key_form: int = SCOPED_KEYS
    """The newest form of keys that the worker speaks. No task with a newer one is handed out, and a task that was never
    claimed before gets this one."""

    def __post_init__(self) -> None:
        """Refuse one string where a list of them is meant: its letters would pass for names."""
        for what in ("queues", "names"):
            if isinstance(getattr(self, what), str):
                raise InvalidValue(f"{what} is the string {getattr(self, what)!r}; give a list of them")
        check_integer("claim number", self.number, lowest=1)
        check_integer("claim limit", self.limit)
        check_integer("the form of keys", self.key_form, lowest=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A task now leased to the caller."""

    task: Task
    fresh: bool
    """Nothing was ever written under it but its submission: it needs no load."""
    alone: bool = False
    """It is a suspect: run nothing beside it."""

    @property
    def fence(self) -> int:
        """The fence every Commit of this attempt must carry."""
        return self.task.fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a worker learns when it says that it is alive."""

    cancel_requested: frozenset[str]
    """Tasks it holds that somebody wants stopped."""
    suspects: bool = False
    """A suspect is ready and waits for a worker that runs nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What time alone made true: one bounded batch of it."""

    recovered: tuple[str, ...] = ()
    """Tasks taken back from dead workers."""
    poisoned: tuple[str, ...] = ()
    """Tasks set aside because they keep killing the worker that runs them."""
    woken: tuple[str, ...] = ()
    """Waiting tasks whose timer ran out."""
    due: int = 0
    """Delayed tasks that became claimable."""
    failed: tuple[str, ...] = ()
    """Tasks whose deadline passed while nobody worked on them."""
    expired: tuple[str, ...] = ()
    """Approvals nobody decided in time."""
    more: bool = False
    """The batch was full: sweep again."""
    next_due: datetime | None = None
    """The earliest moment known at which there will be something to sweep, apart from dead workers."""


def newer_keys_message(task_id: str, *, key_form: int, spoken: int) -> str:
    """Say that a worker cannot take this task: it could not read its journal."""
    return (
        f"the journal of task {task_id} has keys of form {key_form}, and this worker speaks forms up to {spoken}; "
        "a newer version of Holdfast began it: upgrade this worker"
    )


def after_death(
    state: TaskState, *, deaths: int, lone_deaths: int, alone: bool, resting: bool = False
) -> tuple[TaskState, int, int]:
    """Decide what becomes of a task whose worker died: its next state, deaths, lone deaths.

    A death counts where the task was being worked on: in running, or in review, unless it had only rested for long.
    """
    if resting:
        return TaskState.PENDING if state is TaskState.RUNNING else state, deaths, lone_deaths
    if state not in {TaskState.RUNNING, TaskState.REVIEW}:
        return state, deaths, lone_deaths
    lone_deaths += alone
    if lone_deaths >= POISON_AFTER:
        state = TaskState.FAILED
    elif state is TaskState.RUNNING:
        state = TaskState.PENDING
    return state, deaths + 1, lone_deaths
