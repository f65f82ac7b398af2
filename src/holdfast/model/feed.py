"""The feed: one line of everything that happens to all tasks, and which part of it a reader wants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from holdfast.model.checks import check_integer
from holdfast.model.errors import CursorLost, InvalidValue
from holdfast.model.step import StepState
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState
from holdfast.model.worker import WorkerState

OLDEST: Final = "oldest"
"""Instead of a cursor: begin with the oldest event that is kept."""

KINDS: Final = (
    *(f"task.{state}" for state in TaskState),
    *(f"step.{state}" for state in StepState),
    *("approval.opened", "approval.decided", "approval.expired"),
    *("doubt.opened", "doubt.resolved"),
    *("budget.pressure", "budget.exhausted"),
    *("progress", "message"),
    *(f"worker.{state}" for state in WorkerState),
    "schedule.fired",
)
"""Everything that the feed tells."""

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "task": ("from", "reason", "actor"),
    "step": ("key", "kind", "attempts"),
    "approval": ("approval_id", "step", "kind", "risk", "state", "by"),
    "doubt": ("effect_id", "step", "state"),
    "budget": ("meter", "limit", "spent"),
    "progress": ("number", "by"),
    "message": ("number", "by"),
    "worker": ("worker_id", "label"),
    "schedule": ("schedule", "tick_at"),
}
"""The names of what an event carries, in the order in which stores keep the values."""

_NUMBERS: Final = frozenset({"number", "limit", "spent"})

LONGEST_PROGRESS: Final = 2000
"""Bytes of what a task has reported, up to which an event carries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvent:
    """One thing that happened."""

    cursor: str
    """Its place in the feed: ``hold.feed(after=event.cursor)`` goes on behind it."""
    kind: str
    at: datetime
    """When it happened, as far as the store recorded that; the order of the feed is another one."""
    task_id: str | None
    """None for what is not about a task, and for a task that was never stored."""
    name: str | None
    """The name of the task; None if it was pruned, or if there is none."""
    queue: str | None
    labels: Mapping[str, str]
    round: int
    """The round of the task in which it happened."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """A few small values, by kind; never an input, a result or arguments."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {
            "cursor": self.cursor,
            "kind": self.kind,
            "at": self.at.isoformat(),
            "task_id": self.task_id,
            "name": self.name,
            "queue": self.queue,
            "labels": dict(self.labels),
            "round": self.round,
            "data": dict(self.data),
        }


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Some events, in order, and the place behind all that was looked at for them."""

    events: list[FeedEvent]
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRetention:
    """How long events are kept: whichever of the two is reached first. The newest event is never deleted."""

    age: timedelta = timedelta(days=7)
    rows: int = 1_000_000
    """Rows of the store: an event each in SQLite; in PostgreSQL one for all events of a statement."""

    def __post_init__(self) -> None:
        """Refuse what would delete everything at once."""
        if not isinstance(self.age, timedelta) or self.age <= timedelta(0):
            raise InvalidValue(f"the feed cannot be kept for {self.age!r}; give a timedelta above 0")
        check_integer("rows", self.rows, lowest=1)


class FeedPlace(NamedTuple):
    """A cursor, taken apart. What the numbers mean is the store's own business."""

    number: int
    row: int
    entry: int
    mark: str

    def __str__(self) -> str:
        """Return the cursor."""
        return f"{self.number}.{self.row}.{self.entry}.{self.mark}"


def read_cursor(cursor: str) -> FeedPlace:
    """Take a cursor apart. Raises InvalidValue."""
    parts = cursor.split(".") if isinstance(cursor, str) else []
    numbers = [int(part) for part in parts[:3] if part.isascii() and part.isdecimal() and len(part) < 19]  # noqa: PLR2004 - what fits into 64 bits
    if len(parts) != 4 or len(numbers) != 3 or not parts[3].isalnum():  # noqa: PLR2004 - the parts of a FeedPlace
        raise InvalidValue(
            f"{cursor!r} is not a cursor of a feed; pass the cursor of an event, {OLDEST!r}, or nothing to begin now"
        )
    number, row, entry = numbers
    return FeedPlace(number, row, entry, parts[3])


def lost_cursor(cursor: str) -> CursorLost:
    """Return the error for a place that this store has never given out, or has lost."""
    return CursorLost(
        f"the feed of this store has no place {cursor}: it was given out by another store, or by one that was restored "
        "from a backup, or a server took over that did not have it yet. Look at the tasks as they are now, then read "
        f"on without after=, or with after={OLDEST!r}",
        cursor,
    )


def expired_cursor(cursor: str) -> CursorLost:
    """Return the error for a place behind which events were deleted."""
    return CursorLost(
        f"events behind {cursor} are kept no longer. Look at the tasks as they are now, then read on with "
        f"after={OLDEST!r}, or without after=; hold.feed_retention(...) keeps events longer",
        cursor,
    )


def data_of(kind: str, values: Sequence[Any], extra: JsonValue = None) -> dict[str, Any]:
    """Return the data of an event. ``extra`` is what a task reported, if it is small."""
    data = {
        name: int(value) if name in _NUMBERS and value is not None else value
        for name, value in zip(FIELDS[kind.partition(".")[0]], values, strict=False)
    }
    if isinstance(extra, dict):
        data |= {name: value for name, value in extra.items() if name not in data}
        data.pop("kind", None)
    elif extra is not None:
        data["payload"] = extra
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFilter:
    """Which events a reader wants: those that fit every given part."""

    kinds: tuple[str, ...] = ()
    """Kinds, or patterns of kinds: ``task.failed``, ``approval.*``."""
    task_id: str | None = None
    name: str | None = None
    queue: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    wanted: frozenset[str] = field(init=False)
    """The kinds that the patterns mean."""

    def __post_init__(self) -> None:
        """Refuse a pattern that means no kind: its reader would wait for ever."""
        wanted: set[str] = set()
        for pattern in self.kinds:
            found = {kind for kind in KINDS if isinstance(pattern, str) and fnmatchcase(kind, pattern)}
            if not found:
                raise InvalidValue(f"{pattern!r} means no kind of event; there are {', '.join(KINDS)}")
            wanted |= found
        object.__setattr__(self, "wanted", frozenset(wanted or KINDS))

    def takes(self, event: FeedEvent) -> bool:
        """Say whether the reader wants this event."""
        return (
            event.kind in self.wanted
            and (self.task_id is None or event.task_id == self.task_id)
            and (self.name is None or event.name == self.name)
            and (self.queue is None or event.queue == self.queue)
            and all(event.labels.get(label) == value for label, value in self.labels.items())
        )


def feed_filter(
    *,
    kinds: Collection[str] = (),
    task_id: str | None = None,
    name: str | None = None,
    queue: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> FeedFilter:
    """Make a filter of what a caller gave."""
    if isinstance(kinds, str):
        raise InvalidValue(f"kinds is {kinds!r}; give a list: [{kinds!r}]")
    return FeedFilter(kinds=tuple(kinds), task_id=task_id, name=name, queue=queue, labels=labels or {})
