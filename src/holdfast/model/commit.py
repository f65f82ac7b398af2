"""Commit: an atomic set of operations on one task, and the verdict on it.

A worker's Commit is fenced: ``Held(owner, fence, sequence)`` must name the lease on the task row and the next number
under it. Every other caller (a person, a parent, another process) sends ``Expect``: what must still be true.
``store.commit`` makes many Commits durable in one transaction and refuses each of them on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from holdfast.model.effect import EFFECT_MOVES, EffectState
from holdfast.model.errors import (
    BudgetExceeded,
    Conflict,
    HoldfastError,
    IllegalMove,
    InvalidValue,
    LeaseHeld,
    LeaseLost,
    NoPlace,
    NotFound,
    QueueFull,
)
from holdfast.model.ids import new_id
from holdfast.model.operations import Move, Operation, ReopenChild, WriteOutcome, WriteStep
from holdfast.model.remarks import redact_operations
from holdfast.model.task import Submitted, Task
from holdfast.model.transitions import TaskState, illegal_move_message, is_legal

_ONLY_FOR_THE_HOLDER = (Move, WriteOutcome, WriteStep)
"""What only the holder may do to a task while a worker holds it."""


@dataclass(frozen=True, slots=True)
class Held:
    """The guard of a worker: this lease, and the next Commit under it."""

    owner: str
    fence: int
    sequence: int
    """Counts up from 1 under each fence. A number that was applied gets an answer, and is not applied again."""

    def __post_init__(self) -> None:
        """Reject numbers below 1: no lease and no Commit has them, and they would look like an applied Commit."""
        if self.fence < 1 or self.sequence < 1:
            raise InvalidValue(f"fence {self.fence} and sequence {self.sequence} count from 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The guard of every other caller. A field that is None is not checked."""

    states: frozenset[TaskState] | None = None
    revision: int | None = None
    version: int | None = None
    """Of the AgentState: a patch from outside must name the version it was made for."""
    request: str = field(default_factory=new_id)
    """Stored with the task, so that a Commit whose answer was lost can be sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """All of these operations on one task, or none of them. At most one Move, applied last."""

    task_id: str
    guard: Held | Expect
    operations: tuple[Operation, ...]
    actor: str = "worker"
    known_size: int | None = field(default=None, init=False, repr=False, compare=False)
    """The bytes of its payloads, once size.py has counted them."""

    def __post_init__(self) -> None:
        """Redact credentials: every error, reason and note passes here."""
        object.__setattr__(self, "operations", redact_operations(self.operations))

    @property
    def move(self) -> Move | None:
        """The one Move among the operations, if there is one."""
        return next((op for op in self.operations if isinstance(op, Move)), None)


def under_lease(task: Task, worker_id: str, number: int, operations: tuple[Operation, ...], *, by: str) -> Commit:
    """Return the Commit with this number under a worker's lease. The store refuses it after the lease has ended."""
    return Commit(task_id=task.id, guard=Held(worker_id, task.fence, number), operations=operations, actor=by)


class Refusal(StrEnum):
    """Why a Commit was not applied."""

    NOT_FOUND = "not_found"
    SUPERSEDED = "superseded"
    """The lease is over: another fence, or no owner."""
    OUT_OF_ORDER = "out_of_order"
    """An earlier Commit of this fence is missing, usually because it was refused itself."""
    CONFLICT = "conflict"
    """What was expected is no longer true."""
    LEASED = "leased"
    ILLEGAL_MOVE = "illegal_move"
    BUDGET = "budget"
    APPROVAL = "approval"
    EFFECT = "effect"
    KEY = "key"
    FULL = "full"
    """The queue of a child has as many pending tasks as it may have."""
    NO_PLACE = "no_place"
    """A task that rested cannot work again yet: its queue, or one of its limits, has no place for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one Commit, and the task as it is now."""

    task_id: str
    refusal: Refusal | None = None
    """None: applied, and durable."""
    detail: str = ""
    duplicate: bool = False
    """It was applied before; this was sent again."""
    state: TaskState | None = None
    fence: int = 0
    sequence: int = 0
    revision: int = 0
    version: int = 0
    owner: str | None = None
    cancel_requested: str | None = None
    paused: bool = False
    """The task itself was paused: its holder begins nothing more, and hands it back."""
    children: tuple[Submitted, ...] = ()
    budget: BudgetExceeded | None = None
    full: QueueFull | None = None
    no_place: NoPlace | None = None

    @property
    def applied(self) -> bool:
        """Whether the operations are durable."""
        return self.refusal is None

    def require(self) -> Verdict:
        """Return this verdict if the Commit was applied, now or before; otherwise raise its error."""
        if not self.applied:
            raise self.error()
        return self

    def error(self) -> HoldfastError:
        """Return the refusal as the exception a caller would raise."""
        match self.refusal:
            case Refusal.NOT_FOUND:
                return NotFound("task", self.task_id)
            case Refusal.SUPERSEDED:
                return LeaseLost(self.task_id, self.fence, self.owner or f"no worker, it is {self.state}")
            case Refusal.LEASED:
                return LeaseHeld(self.task_id, self.owner or "unknown")
            case Refusal.ILLEGAL_MOVE:
                return IllegalMove(self.detail)
            case Refusal.BUDGET | Refusal.FULL | Refusal.NO_PLACE if (
                exceeded := self.budget or self.full or self.no_place
            ) is not None:
                return exceeded
            case _:
                return Conflict(self.detail)


class TaskHead(Protocol):
    """The part of a task that guards check."""

    @property
    def id(self) -> str: ...  # noqa: D102 - see Task
    @property
    def state(self) -> TaskState: ...  # noqa: D102
    @property
    def owner(self) -> str | None: ...  # noqa: D102
    @property
    def fence(self) -> int: ...  # noqa: D102
    @property
    def sequence(self) -> int: ...  # noqa: D102
    @property
    def revision(self) -> int: ...  # noqa: D102
    @property
    def version(self) -> int: ...  # noqa: D102


def judge(task: TaskHead | None, commit: Commit) -> tuple[Refusal, str] | None:
    """Decide whether the guard holds and the move is legal; None means yes.

    The store answers duplicates before it calls this: only the store knows which requests it has seen.
    ``task`` is the row, read under the lock.
    """
    if task is None:
        return Refusal.NOT_FOUND, f"no task {commit.task_id}"
    refusal = _judge_lease(task, commit.guard) if isinstance(commit.guard, Held) else _judge_expectation(task, commit)
    if refusal is not None:
        return refusal
    move = commit.move
    if move is not None and not is_legal(task.state, move.to):
        return Refusal.ILLEGAL_MOVE, illegal_move_message(task.id, task.state, move.to)
    return None


def _judge_lease(task: TaskHead, held: Held) -> tuple[Refusal, str] | None:
    if task.fence != held.fence or task.owner != held.owner:
        return Refusal.SUPERSEDED, f"task {task.id} is under fence {task.fence}, not {held.fence}"
    if held.sequence != task.sequence + 1:
        return Refusal.OUT_OF_ORDER, f"commit {held.sequence} of task {task.id} came after {task.sequence}"
    return None


def _judge_expectation(task: TaskHead, commit: Commit) -> tuple[Refusal, str] | None:
    if isinstance(commit.guard, Expect) and (mismatch := _mismatch(task, commit.guard)) is not None:
        return Refusal.CONFLICT, mismatch
    if task.owner is not None and any(isinstance(op, _ONLY_FOR_THE_HOLDER) for op in commit.operations):
        return Refusal.LEASED, f"task {task.id} is leased by worker {task.owner}"
    return None


def _mismatch(task: TaskHead, expect: Expect) -> str | None:
    if expect.states is not None and task.state not in expect.states:
        return f"task {task.id} is {task.state}; this needs a task that is {' or '.join(sorted(expect.states))}"
    if expect.revision is not None and task.revision != expect.revision:
        return f"task {task.id} is at revision {task.revision}, expected {expect.revision}"
    if expect.version is not None and task.version != expect.version:
        return f"the state of task {task.id} is at version {task.version}, expected {expect.version}"
    return None


def effect_move_refused(before: EffectState | None, after: EffectState, *, fenced: bool) -> bool:
    """Return whether the move of an effect from ``before`` to ``after`` is refused."""
    if before is after:
        return not fenced
    return after not in EFFECT_MOVES[before]


class ChildHead(TaskHead, Protocol):
    """The part of a task that its parent's ReopenChild checks."""

    @property
    def parent_id(self) -> str | None: ...  # noqa: D102 - see Task


def reopening_refused(parent_id: str, reopen: ReopenChild, child: ChildHead | None) -> str | None:
    """Return why this task may not restart that child; None: it may.

    ``child`` is the row, read under the lock: the parent decided by an earlier read.
    """
    if child is None or child.parent_id != parent_id:
        return f"task {reopen.child_id} is not a child of task {parent_id}; a task can restart only its own children"
    if not child.state.is_terminal or not is_legal(child.state, TaskState.PENDING, by_parent=True):
        return f"child {child.id} is {child.state}; only a child that has ended can be restarted"
    if child.revision != reopen.revision:
        return f"child {child.id} is at revision {child.revision}, expected {reopen.revision}; read it again"
    return None


def not_quiet_message(channel: str, *, after: int, last: int) -> str:
    """Return the message for events that were emitted after the channel was read."""
    return f"channel {channel!r} is at event {last}, and was read up to {after}; read the rest, then decide again"
