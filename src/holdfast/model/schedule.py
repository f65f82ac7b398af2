"""Schedules: what is submitted again and again, at which times, and what is known of the runs so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast.model.checks import check_integer, check_member, check_moment, check_name, check_text
from holdfast.model.errors import InvalidValue
from holdfast.model.task import DEFAULT_QUEUE, NO_AGENT, JsonValue
from holdfast.model.transitions import TaskState

MAX_SCHEDULE_NAME = 120
"""Characters. The key of a task is made of the schedule's name and the tick, and has to be a name itself."""

SHORTEST_EVERY = timedelta(seconds=1)
"""Workers look at the clock about once a second."""

UTC_ZONE = "UTC"


class Overlap(StrEnum):
    """What happens at a tick if the last task of the schedule has not ended."""

    SKIP = "skip"
    """The tick is dropped."""
    QUEUE = "queue"
    """One tick is kept, and its task is submitted when the last one has ended. Further ticks meanwhile are dropped."""
    ALL = "all"
    """Every tick submits its task."""


class CatchUp(StrEnum):
    """What happens to ticks that have passed when a worker looks."""

    NONE = "none"
    """They are dropped, except the newest if it was due within the last minute: workers were only busy."""
    LAST = "last"
    """The newest of them submits its task, the others are dropped."""
    ALL = "all"
    """Each of them submits its task; of many, the newest CATCH_UP_MOST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """What a schedule is made with: when it fires, and which task it submits."""

    task: str
    """The name of the task."""
    user_input: JsonValue = None
    cron: str | None = None
    every: timedelta | None = None
    timezone: str = UTC_ZONE
    """The time zone of ``cron``."""
    jitter: timedelta = timedelta()
    """A task is submitted up to so much after its tick: always the same time for the same tick."""
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.LAST
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    agent_id: str = NO_AGENT
    deadline: timedelta | None = None
    """Counted from the submission of each task."""
    budget: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    """Keys of limits of which each task needs a permit."""

    def has_same_times(self, other: ScheduleSpec) -> bool:
        """Return whether both have the same ticks, for the same anchor."""
        return (self.cron, self.every, self.timezone) == (other.cron, other.every, other.timezone)

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored, and as a worker declares it."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        written = {
            name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in values.items()
        }
        # Without limits it is what earlier versions write: they refuse only what they would not obey.
        del written["limits"]
        return (
            written
            | ({"limits": list(self.limits)} if self.limits else {})
            | {
                "overlap": str(self.overlap),
                "catch_up": str(self.catch_up),
                "budget": dict(self.budget),
                "labels": dict(self.labels),
            }
        )


_NAMES = frozenset(one.name for one in fields(ScheduleSpec))
_TIMES = ("every", "jitter", "deadline")


def read_spec(stored: JsonValue) -> ScheduleSpec:
    """Return what ``to_json`` wrote. InvalidValue if this version cannot do all that it asks for."""
    if not isinstance(stored, dict) or not stored.keys() <= _NAMES:
        unknown = ", ".join(sorted(stored.keys() - _NAMES)) if isinstance(stored, dict) else "no object"
        raise InvalidValue(f"the schedule was made by another version of Holdfast ({unknown}); upgrade this one")
    try:
        times = {name: timedelta(seconds=stored[name]) for name in _TIMES if stored.get(name) is not None}
        return ScheduleSpec(
            **{
                **stored,
                **times,
                "limits": tuple(stored.get("limits", ())),
                "overlap": Overlap(stored["overlap"]),
                "catch_up": CatchUp(stored["catch_up"]),
            }
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidValue(f"the stored schedule cannot be read ({error}); make it again with hold.schedule") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule as a store keeps it. Who changes it names the ``revision`` that it has seen."""

    name: str
    spec: JsonValue
    """What ``ScheduleSpec.to_json`` returned. The store does not look into it."""
    anchored_at: datetime
    """``every`` counts from here."""
    tick_at: datetime
    """The next tick that was not settled yet."""
    due_at: datetime | None
    """When that tick is due, with its jitter. None: it fires nothing, because it is paused or no worker declares it."""
    waits_for_last: bool = False
    """It is not due before its last task has ended: ``overlap="queue"``."""
    declared: bool = False
    """It is declared in code, and fires only while a living worker declares it."""
    declared_by: str | None = None
    """The worker whose declaration counts."""
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    last_tick_at: datetime | None = None
    """The last tick that submitted a task."""
    last_task_id: str | None = None
    fired_at: datetime | None = None
    """When that task was submitted."""
    skipped_at: datetime | None = None
    """The last tick that was dropped because the last task had not ended."""
    created_at: datetime | None = None
    revision: int = 0
    last_state: TaskState | None = None
    """The state of its last task; None without one, or if that was pruned. Read, never written, as is the next."""
    last_ended_at: datetime | None = None
    declarer_lives: bool = False
    """Whether the worker whose declaration counts is not dead."""

    def __post_init__(self) -> None:
        """Reject what a store could not hold."""
        check_schedule_name(self.name)
        check_text("the worker that declares a schedule", self.declared_by)
        check_text("task id", self.last_task_id)
        check_text("the actor", self.paused_by)
        check_text("the reason", self.pause_reason)
        check_integer("the revision of a schedule", self.revision, lowest=0)
        for name in ("anchored_at", "tick_at", "due_at", "paused_at", "last_tick_at", "fired_at", "skipped_at"):
            check_moment(name, getattr(self, name))

    @property
    def is_orphan(self) -> bool:
        """Whether the worker whose declaration counts is dead: another one may take its place."""
        return self.declared_by is not None and not self.declarer_lives

    @property
    def last_is_open(self) -> bool:
        """Whether its last task has not ended."""
        return self.last_state is not None and not self.last_state.is_terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule, as ``hold.schedules()`` returns it."""

    name: str
    task: str
    """The name of the task that it submits."""
    cron: str | None
    every: timedelta | None
    timezone: str
    jitter: timedelta
    overlap: Overlap
    catch_up: CatchUp
    queue: str
    priority: int
    next: tuple[datetime, ...]
    """When its next tasks are submitted; empty while it fires nothing."""
    declared: bool
    """It is declared in code, with ``@hold.task(cron=...)``. Otherwise it was made with ``hold.schedule``."""
    declared_by: tuple[str, ...]
    """The living workers that declare it, the newest last."""
    paused_at: datetime | None
    last_tick_at: datetime | None
    """The last tick that submitted a task."""
    last_task_id: str | None
    last_state: TaskState | None
    """The state of that task; None if it was pruned."""
    fired_at: datetime | None
    skipped_at: datetime | None
    """The last tick that was dropped because the last task had not ended."""
    created_at: datetime | None
    trouble: str | None = None
    """Why it cannot fire: its time zone is not known here, or another version of Holdfast made it."""

    @property
    def is_gone(self) -> bool:
        """Whether it is declared in code, but by no living worker: it fires nothing."""
        return self.declared and not self.declared_by


def check_schedule_name(name: str) -> str:
    """Refuse a name that no store could hold, or that leaves no room for the tick beside it."""
    check_name("schedule name", name)
    if len(name) > MAX_SCHEDULE_NAME:
        raise InvalidValue(f"schedule name has {len(name)} characters; at most {MAX_SCHEDULE_NAME} fit")
    return name


def check_spec(spec: ScheduleSpec) -> None:
    """Refuse a spec that contradicts itself. Its times are checked apart."""
    check_member("overlap", spec.overlap, Overlap)
    check_member("catch_up", spec.catch_up, CatchUp)
    if spec.catch_up is CatchUp.ALL and spec.overlap is not Overlap.ALL:
        raise InvalidValue(
            f"catch_up='all' submits the tasks of all missed ticks at once, which overlap={str(spec.overlap)!r} "
            "forbids; add overlap='all', or leave catch_up out"
        )
    if spec.jitter < timedelta():
        raise InvalidValue(f"jitter is {spec.jitter}; give a time of zero or more")


TICK_MARK = "@"


def key_of(schedule: str, tick: datetime) -> str:
    """Return the key of the task that a tick submits: unique, and readable for people."""
    return f"{schedule}{TICK_MARK}{tick.isoformat()}"


def tick_of(schedule: str | None, key: str | None) -> datetime | None:
    """Return the tick for which a task was submitted; None if it was triggered by hand, or by no schedule."""
    if schedule is None or key is None or not key.startswith(schedule + TICK_MARK):
        return None
    try:
        return datetime.fromisoformat(key.removeprefix(schedule + TICK_MARK))
    except ValueError:
        return None
