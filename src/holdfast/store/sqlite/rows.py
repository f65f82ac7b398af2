"""A task's row as a transaction works on it, and times as microseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter

from holdfast.model.task import rank
from holdfast.model.transitions import TaskState
from holdfast.store.records import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def micros(at: datetime) -> int:
    """Return the stored form of a time."""
    return (at - _EPOCH) // _MICROSECOND


def micros_or_none(at: datetime | None) -> int | None:
    """Return the stored form of a time that may be missing."""
    return None if at is None else micros(at)


def moment(value: int) -> datetime:
    """Return the time a stored number stands for; the first or last possible time for one that stands for none.

    Only an edited row has such a number. It must not prevent the rows beside it from being read.
    """
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return _LAST if value > 0 else _FIRST


@lru_cache(maxsize=1024)
def moment_or_none(value: int | None) -> datetime | None:
    """Return the time a stored number stands for, if there is one. Rows written together share most of their times."""
    return None if value is None else moment(value)


def stored_rank(available_at: int, priority: int) -> int:
    """Return the stored form of a task's place in its queue."""
    if priority == 0:
        return available_at
    try:
        return micros(rank(moment(available_at), priority))
    except OverflowError:  # the stored priority was edited
        return available_at


@dataclass(slots=True)
class TaskRow:
    """The changing part of a row of ``tasks``, as one transaction works on it."""

    id: str
    name: str
    queue: str
    priority: int
    parent_id: str | None
    state: TaskState
    round: int
    attempts: int
    deaths: int
    lone_deaths: int
    feedback: str | None
    cancel_requested: str | None
    must_undo: int
    undoing: int
    owner: str | None
    fence: int
    sequence: int
    claim: int
    alone: int
    revision: int
    version: int
    key_form: int
    resting: int
    moves: int
    ready: int
    held: int
    rank: int
    available_at: int
    wake_at: int | None
    deadline: int | None
    updated_at: int
    started_at: int | None
    finished_at: int | None
    limits: bytes | None
    is_awaited: int
    """Whether another task may wait for its slot. Not a column: see the query task_row."""
    stored: Row
    """The columns as they stand in the database: what differs from them is written."""


TASK_COLUMNS = tuple(field.name for field in fields(TaskRow) if field.name not in {"is_awaited", "stored"})

column_values: Callable[[TaskRow], Row] = attrgetter(*TASK_COLUMNS)
"""Return the row's columns in the order of TASK_COLUMNS."""


def has_slot(row: TaskRow) -> bool:
    """Say whether a worker works on the task: one that only waits where it is has given its slot back."""
    return row.owner is not None and row.resting != row.fence


def had_slot(row: TaskRow) -> bool:
    """Say the same of the row as it stands in the database."""
    return has_slot(task_row(row.stored))


def task_row(row: Row) -> TaskRow:
    """Make a TaskRow of a row of the query task_row."""
    made = TaskRow(*(*row, row))
    made.state = TaskState(made.state)
    return made
