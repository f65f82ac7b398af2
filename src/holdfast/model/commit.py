"""Commit: an atomic set of operations on one task, and the verdict on it.

A worker's Commit is fenced: ``Held(owner, fence, sequence)`` must name the lease that stands on the task row, and the
next number under it. Everybody else (a person, a parent, another process) sends ``Expect``: what must still be true.
``store.commit`` makes many Commits durable in one transaction and refuses any of them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.effect import EFFECT_MOVES, Effect, EffectState
from holdfast.model.errors import BudgetExceeded, Conflict, HoldfastError, IllegalMove, LeaseHeld, LeaseLost, NotFound
from holdfast.model.ids import new_id
from holdfast.model.records import ArtifactLink, Checkpoint
from holdfast.model.step import Step
from holdfast.model.task import JsonValue, NewTask, Submitted
from holdfast.model.transitions import TaskState, illegal_move_message, is_legal


@dataclass(frozen=True, slots=True)
class Held:
    """The guard of a worker: this lease, and the next Commit under it."""

    owner: str
    fence: int
    sequence: int
    """Counts up from 1 under each fence. A number already applied is answered, not applied again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The guard of anybody else. What is None is not looked at."""

    states: frozenset[TaskState] | None = None
    revision: int | None = None
    version: int | None = None
    """Of the AgentState: an outside patch must name the one it was made for."""
    request: str = field(default_factory=new_id)
    """Remembered with the task, so that a Commit whose answer was lost can be sent again."""


# What a task in state waiting waits for. The first one that comes true wakes it.


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilTime:
    """A timer."""

    key: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilEvent:
    """An event on the channel with a number above ``after``; one that is already there counts."""

    key: str
    channel: str
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilChildren:
    """The end of all these tasks: one join, however many they are."""

    key: str
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilDecided:
    """A decision on this approval, in whichever way it ends."""

    key: str
    approval_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilWoken:
    """Nothing by itself: some other Commit moves the task to pending, for example when its budget is raised."""

    key: str


Wait: TypeAlias = UntilTime | UntilEvent | UntilChildren | UntilDecided | UntilWoken


# Operations. Each either applies or refuses the whole Commit; those that can refuse say when.


@dataclass(frozen=True, slots=True)
class WriteStep:
    """Begin or finish a step: the row under (round, key) becomes exactly this."""

    step: Step


@dataclass(frozen=True, slots=True)
class WriteEffect:
    """Store an effect. Refused (EFFECT) unless EFFECT_MOVES allows the move from the stored state.

    Writing the state it already has is allowed to a worker and refused to anybody else: of two people who resolve the
    same doubt, the second is told.
    """

    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPatch:
    """Append a StatePatch to the task's AgentState; the version grows by one."""

    body: bytes
    author: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Store a checkpoint under its number."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateCheckpoints:
    """Delete checkpoints that are both beyond the newest ``keep`` and older than ``before``."""

    keep: int
    before: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAsideCheckpoint:
    """Mark a checkpoint as damaged, for inspection."""

    number: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits:
    """Open an account or change its limits; None is unlimited. What was spent stays spent."""

    account: str
    limits: Mapping[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Hold part of a budget for a step. Refused (BUDGET) where spent + reserved + amount is above a limit."""

    account: str
    step_key: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Release whatever the step holds on the account and add what was really used. Never refused: it happened."""

    account: str
    step_key: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleStale:
    """Count this task's unsettled reservations of earlier fences as spent: after a take-over nobody knows better."""


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """Ask a person."""

    approval: Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """Decide an open approval and wake the task if it waits for it.

    Refused (APPROVAL) unless it is open, unexpired, of this task, and ``by`` is one of its deciders where it names any.
    """

    approval_id: str
    state: ApprovalState
    by: str
    note: str | None = None
    answer: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeApproval:
    """Use an approval for one effect.

    Refused (APPROVAL) unless it was approved (or expired with default approved), its arguments hash is this one, and
    it is unused or used by this very effect.
    """

    approval_id: str
    effect_id: str
    arguments_hash: str


@dataclass(frozen=True, slots=True)
class SubmitChild:
    """Submit a task whose parent is this one. Refused (KEY) where its key is taken by other input."""

    task: NewTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Append an event to a channel and wake who waits for it."""

    channel: str
    payload: JsonValue
    key: str | None = None


@dataclass(frozen=True, slots=True)
class LinkArtifact:
    """Note that this task uses a stored artifact."""

    link: ArtifactLink


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancel:
    """Ask the task's worker to stop at the next durable point. Moves nothing by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequireUndo:
    """Note whether completed steps must be compensated should the task fail, so that no sweep just fails it."""

    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """Replace result and error without a change of state, for tasks that are driven by hand."""

    result: JsonValue = None
    error: JsonValue = None


@dataclass(frozen=True, slots=True)
class Release:
    """Give the lease back, also where the Move (or its absence) would keep it. For workers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Change the state. Refused (ILLEGAL_MOVE) by the table, (LEASED) to outsiders while a worker holds the task.

    A worker's move to anything but running or review gives the lease back. Moving to waiting stores ``waits``; if one
    of them is already true, the task goes straight on to pending.
    """

    to: TaskState
    reason: str
    result: JsonValue = None
    error: JsonValue = None
    available_at: datetime | None = None
    """For pending: not before."""
    waits: tuple[Wait, ...] = ()
    counts_attempt: bool = False
    new_round: bool = False
    feedback: str | None = None


Operation: TypeAlias = (
    WriteStep
    | WriteEffect
    | ApplyPatch
    | SaveCheckpoint
    | RotateCheckpoints
    | SetAsideCheckpoint
    | SetLimits
    | Reserve
    | Settle
    | SettleStale
    | OpenApproval
    | Decide
    | ConsumeApproval
    | SubmitChild
    | Emit
    | LinkArtifact
    | RequestCancel
    | RequireUndo
    | WriteOutcome
    | Release
    | Move
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """All of these operations on one task, or none of them. At most one Move, applied last."""

    task_id: str
    guard: Held | Expect
    operations: tuple[Operation, ...]
    actor: str = "worker"

    @property
    def move(self) -> Move | None:
        """The one Move among the operations, if there is one."""
        return next((op for op in self.operations if isinstance(op, Move)), None)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one Commit, and how the task stands now."""

    task_id: str
    refusal: Refusal | None = None
    """None: applied, and durable."""
    detail: str = ""
    duplicate: bool = False
    """It had been applied before; this was a re-send."""
    state: TaskState | None = None
    fence: int = 0
    sequence: int = 0
    revision: int = 0
    version: int = 0
    owner: str | None = None
    cancel_requested: str | None = None
    children: tuple[Submitted, ...] = ()
    budget: BudgetExceeded | None = None

    @property
    def applied(self) -> bool:
        """Whether the operations are durable."""
        return self.refusal is None

    def error(self) -> HoldfastError:
        """Return the refusal as the exception a caller would raise."""
        match self.refusal:
            case Refusal.NOT_FOUND:
                return NotFound("task", self.task_id)
            case Refusal.SUPERSEDED:
                return LeaseLost(self.task_id, self.fence, self.owner or f"nobody, it is {self.state}")
            case Refusal.LEASED:
                return LeaseHeld(self.task_id, self.owner or "unknown")
            case Refusal.ILLEGAL_MOVE:
                return IllegalMove(self.detail)
            case Refusal.BUDGET if self.budget is not None:
                return self.budget
            case _:
                return Conflict(self.detail)


class TaskHead(Protocol):
    """The part of a task that guards look at."""

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

    Duplicates are for the store to answer before it asks: only the store knows which requests it has seen.
    ``task`` is the row as it stands under the lock.
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
    if commit.move is not None and task.owner is not None:
        return Refusal.LEASED, f"task {task.id} is leased by worker {task.owner}"
    return None


def _mismatch(task: TaskHead, expect: Expect) -> str | None:
    if expect.states is not None and task.state not in expect.states:
        return f"task {task.id} is {task.state}, expected {' or '.join(sorted(expect.states))}"
    if expect.revision is not None and task.revision != expect.revision:
        return f"task {task.id} is at revision {task.revision}, expected {expect.revision}"
    if expect.version is not None and task.version != expect.version:
        return f"the state of task {task.id} is at version {task.version}, expected {expect.version}"
    return None


def effect_move_refused(before: EffectState | None, after: EffectState, *, fenced: bool) -> bool:
    """Say whether an effect may not go from ``before`` to ``after``."""
    if before is after:
        return not fenced
    return after not in EFFECT_MOVES[before]
