"""Task: one piece of work that a user, a parent or a schedule asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from holdfast.model.checks import check_amounts, check_integer, check_member, check_moment, check_name, check_text
from holdfast.model.errors import Conflict, InvalidValue
from holdfast.model.flow_limit import check_keys
from holdfast.model.ids import new_id
from holdfast.model.labels import check_labels
from holdfast.model.transitions import TaskState

JsonValue: TypeAlias = Any
"""Plain JSON data: None, bool, int, float, str, and lists and string-keyed dicts of these."""

DEFAULT_QUEUE = "default"
NO_AGENT = "default"
"""The agent id of a task that was submitted by a process that does not have its definition."""

MANUAL = "manual"
"""The name of tasks that are driven by hand through ``save``; no worker registers it, so none claims them."""

HANDOVER = "handover"
"""The name of tasks for agents outside: the agent that claims one works on it under a lease, without a definition."""

AGEING = timedelta(minutes=10)
"""How much older a task must be to overtake a task whose priority is higher by 1."""

MAX_PRIORITY = 1_000_000
"""Worth nineteen years of waiting; the result must stay inside the range of dates."""

MAX_ROUND = 1 << 20
"""The positions of this many rounds fit into the databases' 64 bits."""

FLAT_KEYS, SCOPED_KEYS = 1, 2
"""Forms of the keys in a journal. Flat: a step inside another step is named like any other step. Scoped: its key begins
with the key of the step around it."""

_SEARCHED_INPUT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as it is stored. Only a Commit, a claim or a sweep changes it."""

    id: str = field(default_factory=new_id)
    name: str = MANUAL
    """Which definition runs it. Workers claim only the names they registered."""
    agent_id: str = "default"
    user_input: JsonValue = None
    state: TaskState = TaskState.PENDING
    result: JsonValue = None
    error: JsonValue = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    """Higher first; ageing keeps tasks with a low priority from starving."""
    key: str | None = None
    """Idempotency key, unique per name while the task is kept."""
    available_at: datetime | None = None
    """It is not claimed before this time."""
    deadline: datetime | None = None
    schedule: str | None = None
    parent_id: str | None = None

    round: int = 1
    """Steps of an earlier round do not replay, except completed ``once`` effects."""
    attempts: int = 0
    """Failed tries: a retry or a rejection counts 1, a suspension or a dead worker 0."""
    deaths: int = 0
    """Workers that died while holding this task."""
    lone_deaths: int = 0
    """Of these, the workers that ran nothing else: only these deaths make a task poison."""
    feedback: str | None = None
    """Why the last round was rejected."""
    cancel_requested: str | None = None
    """Why a cancel was requested; its worker stops at the next durable point."""
    must_undo: bool = False
    """Completed steps must be compensated if it fails: its deadline wakes it instead of failing it."""

    owner: str | None = None
    """The worker incarnation that holds the lease."""
    fence: int = 0
    """Grows whenever a lease is granted or taken away; a Commit under an older fence is refused."""
    sequence: int = 0
    """The last Commit applied under this fence."""
    revision: int = 0
    """Grows with every change of this record."""
    version: int = 0
    """The version of its AgentState: how many patches were applied."""
    key_form: int = 0
    """The form of the keys in its journal: 0 before its first claim, then the form of the worker that claimed it."""
    resting: bool = False
    """It only waits, although it keeps its worker: it has no slot there, and a death of that worker does not count."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Names with values, by which it is found again. Its children have them, too."""
    limits: tuple[str, ...] = ()
    """The keys of limits of which it needs a permit while it has a slot, sorted."""
    waits_for: str | None = None
    """The key in whose line it waits, or waited last. None: it has no limits, or has never waited."""


class IfExists(StrEnum):
    """What a submission does if a task of its name has its key already."""

    RETURN = "return"
    """It is answered with that task if the input is the same, and is a KeyConflict otherwise."""
    REPLACE = "replace"
    """A task that was never claimed gets the new input, options, labels and time, and stays in its queue: another is a
    Conflict. Otherwise as RETURN."""
    REJECT = "reject"
    """It is a TaskExists, whatever the input is."""


class Unclaimed(Protocol):
    """What tells whether a task was ever claimed, or changed in another way, since it was submitted."""

    state: TaskState
    fence: int
    moves: int
    version: int
    cancel_requested: str | None


def is_untouched(task: Unclaimed) -> bool:
    """Return whether nothing but submissions was ever done to a task: only such a task is replaced.

    A fork, and a task whose state was patched, have a past that does not belong to another input.
    """
    return (
        task.state is TaskState.PENDING
        and task.fence == 0
        and task.moves == 1
        and task.version == 0
        and task.cancel_requested is None
    )


def stays_in_queue(task_id: str, queue: str, wanted: str) -> Conflict:
    """Return the error for a submission that would move a task to another queue by replacing it."""
    return Conflict(
        f"task {task_id}, which has the key, waits in queue {queue!r} and is not moved to {wanted!r} by a "
        f"submission that replaces it; submit it to {queue!r}, or cancel it and use another key"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to be submitted."""

    name: str
    user_input: JsonValue = None
    id: str = field(default_factory=new_id)
    agent_id: str = "default"
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    key: str | None = None
    available_at: datetime | None = None
    deadline: datetime | None = None
    schedule: str | None = None
    parent_id: str | None = None
    budget: Mapping[str, int] = field(default_factory=dict)
    """Limits per meter of the account opened under this task's id; a missing meter is unlimited."""
    actor: str = "submit"
    state: TaskState = TaskState.PENDING
    """Only ``save`` and a fork use another state: a task recorded by hand begins in the state that its user gives, and
    a fork is not claimed before its past is copied."""
    round: int = 1
    """Only a fork begins in a later round: it shares the earlier ones."""
    result: JsonValue = None
    error: JsonValue = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    limits: tuple[str, ...] = ()
    """Keys of limits: ``openai``, ``tenant:acme``. Sorted here, each once."""
    if_exists: IfExists = IfExists.RETURN
    debounce_max: timedelta | None = None
    """It is debounced: it replaces a task with its key that was never claimed, and begins no later than this after that
    task was submitted; from a task that was claimed it takes over the key."""

    def __post_init__(self) -> None:
        """Reject names that a store could not hold."""
        check_name("task id", self.id)
        check_name("task name", self.name)
        check_name("task agent_id", self.agent_id)
        check_name("task queue", self.queue)
        if self.key is not None:
            check_name("task key", self.key)
        check_text("task schedule", self.schedule)
        check_text("actor", self.actor)
        check_moment("available_at", self.available_at)
        check_moment("deadline", self.deadline)
        check_integer("priority", self.priority, lowest=-MAX_PRIORITY, highest=MAX_PRIORITY)
        check_amounts(self.budget)
        check_integer("round", self.round, lowest=1, highest=MAX_ROUND)
        check_member("task state", self.state, TaskState)
        check_text("parent id", self.parent_id)
        if self.labels:
            check_labels(self.labels)
        if self.limits:
            object.__setattr__(self, "limits", check_keys(self.limits))
        if self.if_exists is not IfExists.RETURN or self.debounce_max is not None:
            self._check_meeting()

    @property
    def replaces(self) -> bool:
        """Whether it replaces a task with its key that was never claimed."""
        return self.if_exists is IfExists.REPLACE or self.debounce_max is not None

    def _check_meeting(self) -> None:
        check_member("if_exists", self.if_exists, IfExists)
        if self.key is None:
            raise InvalidValue("if_exists= and debounce= are about a task with the same key; give a key=")
        if self.debounce_max is not None and self.if_exists is not IfExists.RETURN:
            raise InvalidValue("a debounced submission replaces a task that waits; leave out if_exists=")
        if self.state is not TaskState.PENDING:
            raise InvalidValue(f"a task that is {self.state} from the beginning replaces none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The result of one submission."""

    task_id: str
    created: bool
    """False: a task with this key and the same input is already there, and this is its id."""
    conflict: bool = False
    """True: the key is taken by ``task_id``, which has other input. Nothing was stored."""


def rank(available_at: datetime, priority: int) -> datetime:
    """Return the moment by which the queue is ordered: each point of priority counts as ``AGEING`` of waiting.

    It never changes, so it can be indexed: a task that waits long enough overtakes others without any update.
    """
    return available_at - priority * AGEING


def search_text(*, name: str, agent_id: str, key: str | None, user_input: str) -> str:
    """Return the text that a text query searches, case-folded here so that all stores agree."""
    return _folded(" ".join((name, agent_id, key or "", user_input[:_SEARCHED_INPUT])))


def _folded(text: str) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return text.casefold()
