"""Rows of tasks: times as microseconds, payloads as canonical bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, TypeAlias

from holdfast.model.canonical import canonical, parse
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState

Row: TypeAlias = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return the stored form of a time."""
    return (at - _EPOCH) // _MICROSECOND


def micros_or_none(at: datetime | None) -> int | None:
    """Return the stored form of a time that may be missing."""
    return None if at is None else micros(at)


def moment(value: int) -> datetime:
    """Return the time a stored number stands for."""
    return _EPOCH + timedelta(microseconds=value)


def moment_or_none(value: int | None) -> datetime | None:
    """Return the time a stored number stands for, if there is one."""
    return None if value is None else moment(value)


def payload_or_none(value: JsonValue) -> bytes | None:
    """Return canonical bytes, or None for a value that is absent."""
    return None if value is None else canonical(value)


def value_or_none(body: bytes | None) -> JsonValue:
    """Return the value of stored bytes, or None where there are none."""
    return None if body is None else parse(body)


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
    owner: str | None
    fence: int
    sequence: int
    claim: int
    alone: int
    revision: int
    version: int
    moves: int
    ready: int
    rank: int
    available_at: int
    wake_at: int | None
    deadline: int | None
    updated_at: int
    started_at: int | None
    finished_at: int | None
    stored: Row
    """The columns as they stand in the database: what differs from them is written."""


TASK_COLUMNS = tuple(field.name for field in fields(TaskRow) if field.name != "stored")

column_values: Callable[[TaskRow], Row] = attrgetter(*TASK_COLUMNS)
"""Return the row's columns in the order of TASK_COLUMNS."""


def task_row(row: Row) -> TaskRow:
    """Make a TaskRow of the columns ``TASK_COLUMNS``."""
    made = TaskRow(*(*row, row))
    made.state = TaskState(made.state)
    return made


def task_record(row: Row) -> Task:
    """Make a Task of the first columns of the view ``task_records``."""
    return Task(
        id=row[0],
        name=row[1],
        agent_id=row[2],
        user_input=parse(row[3]),
        state=TaskState(row[4]),
        result=value_or_none(row[5]),
        error=value_or_none(row[6]),
        created_at=moment(row[7]),
        updated_at=moment(row[8]),
        started_at=moment_or_none(row[9]),
        finished_at=moment_or_none(row[10]),
        queue=row[11],
        priority=row[12],
        key=row[13],
        available_at=moment(row[14]),
        deadline=moment_or_none(row[15]),
        schedule=row[16],
        parent_id=row[17],
        round=row[18],
        attempts=row[19],
        deaths=row[20],
        lone_deaths=row[21],
        feedback=row[22],
        cancel_requested=row[23],
        must_undo=bool(row[24]),
        owner=row[25],
        fence=row[26],
        sequence=row[27],
        revision=row[28],
        version=row[29],
    )
