"""Workers and leases: who works on what, until when, and when a task that kills its workers is poison."""

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
"""After this many worker deaths a task runs only on a worker that runs nothing else. A single death is usually a reboot
or a deploy; if every task of a killed worker had to run alone, most work would stop."""

POISON_AFTER = 3
"""After this many deaths of workers that ran nothing else, the task fails as poison."""

QUIET_FOR = 60.0
"""Seconds that a task must have rested before the death of its worker no longer counts: what its code does beside the
wait may be what kills the worker."""


SHORTEST_LEASE, LONGEST_LEASE = 0.01, 86_400.0
"""Seconds. A shorter lease could not be renewed in time; a longer one would block a dead worker's tasks for days."""


class WorkerState(StrEnum):
    """Whether a worker may claim."""

    LIVE = "live"
    DRAINING = "draining"
    """Finishes its tasks and claims nothing more."""
    DEAD = "dead"
    """Its lease ran out, or it retired. Final: a process that returns registers a new incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorker:
    """One incarnation of a worker process, about to register."""

    id: str = field(default_factory=new_id)
    """Fresh per process start: a restart under an old id would renew its dead predecessor's lease."""
    label: str = "worker"
    """For people; two workers may share it."""
    lease: float = 30.0
    """Seconds without a heartbeat before its tasks are taken back."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Host, pid, queues, concurrency: what helps a person to find the process."""

    def __post_init__(self) -> None:
        """Reject a lease that could not be renewed in time."""
        check_name("worker id", self.id)
        check_name("worker label", self.label)
        if not SHORTEST_LEASE <= self.lease <= LONGEST_LEASE:
            raise InvalidValue(
                f"a lease of {self.lease} s is out of range; choose {SHORTEST_LEASE} to {LONGEST_LEASE} seconds"
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
    """A request for work. It is numbered, so that it can be sent again if the answer was lost."""

    worker_id: str
    number: int
    """Counts up from 1 within the worker. Sending a number again returns the same tasks as the first time."""
    limit: int
    queues: Sequence[str] = ("default",)
    names: Sequence[str] = ()
    """The task definitions this worker knows; empty claims nothing."""
    alone: bool = False
    """The worker runs nothing else and asks for one suspect. If False, the store hands out no suspect."""
    key_form: int = SCOPED_KEYS
    """The newest form of keys that the worker can read. The store hands out no task with a newer form, and a task that
    was never claimed gets this form."""

    def __post_init__(self) -> None:
        """Reject a string in place of a list: its letters would count as names."""
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
    """Only its submission was written so far: it needs no load."""
    alone: bool = False
    """It is a suspect: run nothing beside it."""

    @property
    def fence(self) -> int:
        """The fence every Commit of this attempt must carry."""
        return self.task.fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The store's answer to a worker's heartbeat."""

    cancel_requested: frozenset[str]
    """Tasks it holds for which a cancel was requested."""
    suspects: bool = False
    """A suspect is ready and waits for a worker that runs nothing else."""
    paused: frozenset[str] = frozenset()
    """Tasks it holds that were paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The changes due because time passed: one bounded batch."""

    recovered: tuple[str, ...] = ()
    """Tasks taken back from dead workers."""
    poisoned: tuple[str, ...] = ()
    """Tasks failed as poison because their workers kept dying."""
    woken: tuple[str, ...] = ()
    """Waiting tasks whose timer ran out."""
    due: int = 0
    """Delayed tasks that became claimable."""
    failed: tuple[str, ...] = ()
    """Tasks whose deadline passed while no worker held them."""
    expired: tuple[str, ...] = ()
    """Approvals that were not decided in time."""
    pruned: int = 0
    """Ended tasks deleted, because their queue keeps them no longer."""
    more: bool = False
    """The batch was full: sweep again."""
    next_due: datetime | None = None
    """The earliest moment known at which there will be something to sweep, apart from dead workers."""
    next_tick: datetime | None = None
    """When the next schedule is due. A schedule whose declaring worker is dead counts as due: others look after it."""


def newer_keys_message(task_id: str, *, key_form: int, spoken: int) -> str:
    """Return the error for a worker that cannot read this task's journal."""
    return (
        f"the journal of task {task_id} has keys of form {key_form}, and this worker reads forms up to {spoken}; "
        "a newer version of Holdfast began it: upgrade this worker"
    )


def after_death(
    state: TaskState, *, deaths: int, lone_deaths: int, alone: bool, resting: bool = False
) -> tuple[TaskState, int, int]:
    """Return the next state, deaths and lone deaths of a task whose worker died.

    A death counts in running and in review, unless the task had only rested for long.
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
