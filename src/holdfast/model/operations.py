"""Operations: what a Commit can do to its task, and what a waiting task can wait for.

Each operation either applies or refuses the whole Commit; the docstring names when it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.checks import check_integer, check_member, check_moment, check_name, check_text
from holdfast.model.effect import Effect
from holdfast.model.errors import InvalidValue
from holdfast.model.records import ArtifactLink, Checkpoint
from holdfast.model.step import Step
from holdfast.model.task import FLAT_KEYS, MAX_ROUND, SCOPED_KEYS, JsonValue, NewTask
from holdfast.model.transitions import TaskState

# What a waiting task waits for. The first wait that is fulfilled wakes it.


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilTime:
    """A timer."""

    key: str
    at: datetime

    def __post_init__(self) -> None:
        """Refuse a time without a zone."""
        check_moment("the time to wait for", self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilEvent:
    """An event on the channel with a number above ``after``; an event that is already there counts."""

    key: str
    channel: str
    after: int = 0

    def __post_init__(self) -> None:
        """Reject a position that cannot exist: the wait would never end."""
        check_name("channel", self.channel)
        check_integer("the event to wait behind", self.after, lowest=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilChildren:
    """The end of all these tasks: one join for any number of them."""

    key: str
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilDecided:
    """The end of this approval, in any state."""

    key: str
    approval_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilWoken:
    """No event of its own: another Commit moves the task to pending, for example when its budget is raised."""

    key: str


Wait: TypeAlias = UntilTime | UntilEvent | UntilChildren | UntilDecided | UntilWoken


# What a Commit does.


@dataclass(frozen=True, slots=True)
class WriteStep:
    """Begin or finish a step: the row under (round, key) becomes exactly this."""

    step: Step


@dataclass(frozen=True, slots=True)
class WriteEffect:
    """Store an effect. Refused (EFFECT) unless EFFECT_MOVES allows the move from the stored state.

    A worker may write the state that it already has; for every other caller that is refused. So if two people resolve
    the same doubt, the second gets a Conflict.
    """

    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPatch:
    """Append a StatePatch to the task's AgentState; the version grows by one."""

    body: bytes
    author: str
    reason: str = ""
    step_key: str | None = None
    """The step whose Commit carries it; None for a patch from outside."""
    round: int | None = None
    """Of that step; None is the task's current round. A copied history names other rounds."""

    def __post_init__(self) -> None:
        """Reject a round that cannot exist."""
        if self.round is not None:
            check_integer("the round of a patch", self.round, lowest=1, highest=MAX_ROUND)


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
    """Release what the step holds on the account under this fence and add what was really used.

    Never refused: it happened. SettleStale handles reservations of earlier fences: their real use is unknown.
    """

    account: str
    step_key: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleStale:
    """Count this task's unsettled reservations of earlier fences as spent: their real use is unknown."""


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """Ask a person."""

    approval: Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """Decide an open approval and wake the task if it waits for it.

    Refused (APPROVAL) unless it is open, unexpired, of this task, and ``by`` is one of its deciders, if it names any.
    VOID withdraws the question. The asker does that, so the deciders are not checked.
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
    it is unused or used by the same effect.
    """

    approval_id: str
    effect_id: str
    arguments_hash: str


@dataclass(frozen=True, slots=True)
class SubmitChild:
    """Submit a task whose parent is this one. Refused (KEY) where its key is taken by other input."""

    task: NewTask


class _Same(Enum):
    """A value of its own type: no JSON value equals it, and a copy of it is the same object."""

    INPUT = "the input stays as it is"


SAME_INPUT: Final = _Same.INPUT
"""The ``user_input`` of a ReopenChild that keeps the child's input. None is a normal input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenChild:
    """Restart an ended child of this task. For workers only.

    Refused (CONFLICT) unless it is a child of this task, has ended, and still has this revision.

    The child becomes pending. Its outcome, attempts, deaths and cancel request are cleared, and it is no longer being
    undone. Its fence, its idempotency key and ``must_undo`` stay.
    """

    child_id: str
    revision: int
    """Of the child, as the parent last read it."""
    reason: str
    new_round: bool = False
    """True: a new round of the child. False: it continues in its round."""
    feedback: str | None = None
    """In a new round it becomes the child's feedback, also when None. In the same round it is ignored."""
    user_input: JsonValue = SAME_INPUT
    """Any other value replaces the child's input. Only with ``new_round``."""
    deadline: datetime | None = None
    """Becomes the child's deadline, also when None."""
    available_at: datetime | None = None
    """The child is not claimed before this time; None is now."""
    lines: tuple[Step, ...] = ()
    """Written to the child's journal, like WriteStep, for the steps that ended it."""

    def __post_init__(self) -> None:
        """Reject values that a store could not hold, and new input for the current round."""
        check_name("child id", self.child_id)
        check_integer("the revision of the child", self.revision, lowest=1)
        check_text("reason", self.reason)
        check_text("feedback", self.feedback)
        check_moment("deadline", self.deadline)
        check_moment("available_at", self.available_at)
        if self.user_input is not SAME_INPUT and not self.new_round:
            raise InvalidValue(f"child {self.child_id} can get other input only in a new round; pass new_round=True")


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritKeys:
    """For a fork: set the form of the keys it inherits. It has no effect once the task was claimed."""

    key_form: int

    def __post_init__(self) -> None:
        """Reject an unknown form of keys."""
        check_integer("the form of the keys", self.key_form, lowest=FLAT_KEYS, highest=SCOPED_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Append an event to a channel and wake the tasks that wait for it."""

    channel: str
    payload: JsonValue
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireQuiet:
    """Refused (CONFLICT) if the channel has an event with a number above ``after``, or had one that was pruned.

    With it a task ends only if no message arrived since its last read. An event comes either before this Commit, which
    is then refused, or after it.
    """

    channel: str
    after: int

    def __post_init__(self) -> None:
        """Reject a position that cannot exist."""
        check_name("channel", self.channel)
        check_integer("the event it was read up to", self.after, lowest=0)


@dataclass(frozen=True, slots=True)
class LinkArtifact:
    """Record that this task uses a stored artifact."""

    link: ArtifactLink


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancel:
    """Ask the task's worker to stop at the next durable point. It does not change the state."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequireUndo:
    """Record whether completed steps must be compensated if the task fails, so that no sweep simply fails it."""

    required: bool
    begun: bool = False
    """The undoing has begun: the task's deadline no longer wakes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """Replace result and error without a change of state, for tasks that a person drives by hand."""

    result: JsonValue = None
    error: JsonValue = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Record that the task only waits although it keeps its worker, or that it works again. For workers only.

    After it has rested for QUIET_FOR, the death of its worker does not count as a death of the task. The record ends
    with the lease.
    """

    resting: bool


@dataclass(frozen=True, slots=True)
class ShareWorker:
    """Record that a suspect shares its worker: if that worker dies, other tasks may be the cause. For workers only."""

    acquitted: bool = False
    """It ran alone for long without harm: its earlier deaths no longer count."""


@dataclass(frozen=True, slots=True)
class Release:
    """Release the lease, even where the Move (or its absence) would keep it. For workers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Change the state. Refused (ILLEGAL_MOVE) by the table, (LEASED) to outsiders while a worker holds the task.

    A worker's move to any state but running or review releases the lease. A move to waiting stores ``waits``; if one of
    them is already fulfilled, the task goes straight to pending.
    """

    to: TaskState
    reason: str
    result: JsonValue = None
    error: JsonValue = None
    available_at: datetime | None = None
    """For pending: the task is not claimed before this time."""
    deadline: datetime | None = None
    """For pending: the task's new deadline; None keeps the one it has."""
    waits: tuple[Wait, ...] = ()
    counts_attempt: bool = False
    new_round: bool = False
    feedback: str | None = None

    def __post_init__(self) -> None:
        """Reject an unknown state, and a time without a zone."""
        check_member("the state to move to", self.to, TaskState)
        check_moment("available_at", self.available_at)
        check_moment("deadline", self.deadline)


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
    | ReopenChild
    | InheritKeys
    | Emit
    | RequireQuiet
    | LinkArtifact
    | RequestCancel
    | RequireUndo
    | WriteOutcome
    | Rest
    | ShareWorker
    | Release
    | Move
)
