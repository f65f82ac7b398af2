"""The place in a listing where the next page begins: opaque to callers, the same in every store."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.model.checks import check_moment, check_name
from holdfast.model.errors import InvalidValue
from holdfast.model.queries import Page
from holdfast.model.task import Task

_MALFORMED: Final = (binascii.Error, ValueError, TypeError, OverflowError, RecursionError)
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
_LAST_ID: Final = chr(0x10FFFF)
"""Sorts behind every id, for it cannot be printed and so is in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """Where a page of ``queued`` begins: among the tasks that are due, or behind them, among the delayed ones."""

    as_of: datetime | None = None
    """The time of the first page, which decides for all of them what is due; None on the first page itself."""
    due_after: tuple[datetime, str] = (_EARLIEST, "")
    """The rank and id of the last task that was seen."""
    delayed_after: tuple[datetime | None, str] = (None, _LAST_ID)
    """When the last task that was seen becomes due, and its id. None stands for ``as_of``: none was seen."""


def to_cursor(created_at: datetime, task_id: str) -> str:
    """Name the place right behind this task."""
    return _encode(created_at.isoformat(), task_id)


def from_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the creation time and id of the task the page begins behind."""
    try:
        at, task_id = _decode(cursor)
        return _moment(at), check_name("its id", task_id)
    except _MALFORMED as error:
        raise _refused(cursor) from error


def page_of(found: Sequence[Task], limit: int) -> Page[Task]:
    """Make a page of the tasks a query found when it asked for one more than fits."""
    items = tuple(found[:limit])
    last = items[-1] if len(found) > limit else None
    return Page(items=items, next=to_cursor(last.created_at, last.id) if last and last.created_at else None)


def from_queue_cursor(cursor: str | None) -> QueuePlace:
    """Return where the page begins; without a cursor, at the front."""
    if cursor is None:
        return QueuePlace()
    try:
        match _decode(cursor):
            case [as_of, bool(delayed), at, task_id]:
                place = (_moment(at), check_name("its id", task_id))
                if delayed:
                    return QueuePlace(as_of=_moment(as_of), due_after=(_LATEST, _LAST_ID), delayed_after=place)
                return QueuePlace(as_of=_moment(as_of), due_after=place)
    except _MALFORMED as error:
        raise _refused(cursor) from error
    raise _refused(cursor)


def queue_page_of(found: Sequence[tuple[Task, bool, datetime]], limit: int, as_of: datetime) -> Page[Task]:
    """Make a page of tasks, each with whether it is delayed and its place; one more than fits was asked for.

    The place is when it is due for a delayed one, and otherwise its stored rank: in a fair queue that is its turn.
    """
    items = tuple(task for task, _, _ in found[:limit])
    if len(found) <= limit:
        return Page(items=items, next=None)
    last, delayed, at = found[limit - 1]
    return Page(items=items, next=_encode(as_of.isoformat(), delayed, at.isoformat(), last.id))


def _encode(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


def _decode(cursor: str) -> Any:  # noqa: ANN401 - whatever a caller sent
    return json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    check_moment("its time", moment)
    return moment.astimezone(UTC)


def _refused(cursor: str) -> InvalidValue:
    return InvalidValue(f"{cursor!r} is not a cursor; pass the `next` of an earlier page of this listing, or nothing")
