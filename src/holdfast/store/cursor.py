"""The place in a listing where the next page begins: opaque to callers, the same in every store."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import datetime

from holdfast.model.errors import InvalidValue
from holdfast.model.queries import Page
from holdfast.model.task import Task


def to_cursor(created_at: datetime, task_id: str) -> str:
    """Name the place right behind this task."""
    text = json.dumps([created_at.isoformat(), task_id])
    return base64.urlsafe_b64encode(text.encode()).decode()


def from_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the creation time and id of the task the page begins behind."""
    try:
        at, task_id = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
        return datetime.fromisoformat(at), str(task_id)
    except (binascii.Error, ValueError, TypeError) as error:
        raise InvalidValue(f"{cursor!r} is no cursor; pass the `next` of an earlier page, or nothing") from error


def page_of(found: Sequence[Task], limit: int) -> Page[Task]:
    """Make a page of the tasks a query found when it asked for one more than fits."""
    items = tuple(found[:limit])
    last = items[-1] if len(found) > limit else None
    return Page(items=items, next=to_cursor(last.created_at, last.id) if last and last.created_at else None)
