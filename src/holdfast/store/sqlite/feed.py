"""The feed: reading it, and deleting what is kept no longer. Triggers write it (migration 0014)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final
from zlib import crc32

from holdfast.model.feed import (
    LONGEST_PROGRESS,
    OLDEST,
    FeedEvent,
    FeedPage,
    FeedPlace,
    FeedRetention,
    data_of,
    expired_cursor,
    lost_cursor,
    read_cursor,
)
from holdfast.store.records import Row, value_or_trouble
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.rows import moment
from holdfast.store.sqlite.write_transaction import WriteTransaction

_MICROSECOND: Final = timedelta(microseconds=1)
_MOST_DELETED: Final = 5000
"""Rows in one sweep."""
_BEGINNING: Final = "0"
"""The mark of the place in front of the first event that is kept."""


def read_feed(reader: Reader, after: str | None, limit: int) -> FeedPage:
    """See FeedVerbs."""
    with reader.at_one_moment():
        if after is None or after == OLDEST:
            number = 0
            for (number,) in reader.rows("feed_end" if after is None else "feed_begin"):  # noqa: B007 - one row at most
                pass
            return FeedPage([], str(_place(reader, number)))
        place = read_cursor(after)
        _check(reader, place, after)
        events = [_event(*row) for row in reader.rows("feed_page", place.number, limit, LONGEST_PROGRESS)]
    return FeedPage(events, events[-1].cursor if events else after)


def _check(reader: Reader, place: FeedPlace, cursor: str) -> None:
    """Raise CursorLost unless the place is there as it was given out, with everything behind it."""
    begin = next((number for (number,) in reader.rows("feed_begin")), 0)
    if place.mark == _BEGINNING and place.number == begin:
        return
    for row in reader.rows("feed_row", place.number):
        if _mark(*row) != place.mark:
            raise lost_cursor(cursor)
        return
    raise expired_cursor(cursor) if place.number <= begin else lost_cursor(cursor)


def _place(reader: Reader, number: int) -> FeedPlace:
    for row in reader.rows("feed_row", number):
        return FeedPlace(number, 0, 0, _mark(*row))
    return FeedPlace(number, 0, 0, _BEGINNING)


def _mark(task_id: str, kind: str, at: int, data: str) -> str:
    """Tell an event from another one that has its number in a copy of the file."""
    return f"{crc32(f'{task_id}{kind}{at}{data}'.encode()):08x}"


def _event(  # noqa: PLR0917 - the columns of the query
    number: int,
    task_id: str,
    kind: str,
    of_round: int | None,
    at: int,
    data: str,
    name: str | None,
    queue: str | None,
    labels: bytes | None,
    payload: bytes | None,
) -> FeedEvent:
    values: list[Any] = json.loads(data)
    if kind == "schedule.fired" and isinstance(values[1], int):
        values[1] = moment(values[1]).isoformat()
    return FeedEvent(
        cursor=str(FeedPlace(number, 0, 0, _mark(task_id, kind, at, data))),
        kind=kind,
        at=moment(at),
        task_id=task_id or None,
        name=name,
        queue=queue,
        labels={} if labels is None else json.loads(labels),
        round=of_round or 0,
        data=data_of(kind, values, value_or_trouble(payload, "progress")),
    )


def set_feed_retention(tx: WriteTransaction, retention: FeedRetention) -> None:
    """See FeedVerbs."""
    tx.run("set_feed_retention", retention.age // _MICROSECOND, retention.rows)


def feed_retention(reader: Reader) -> FeedRetention:
    """See FeedVerbs."""
    return _retention(list(reader.rows("feed_retention")))


def _retention(rows: list[Row]) -> FeedRetention:
    for kept_for, kept_rows in rows:
        return FeedRetention(age=timedelta(microseconds=kept_for), rows=kept_rows)
    return FeedRetention()


def prune_feed(tx: WriteTransaction) -> None:
    """Delete the oldest events that are kept no longer, but never the newest one: its number must not come again."""
    retention = _retention(tx.all("feed_retention"))
    cutoff = tx.now - retention.age // _MICROSECOND
    [(is_long,)] = tx.all("feed_is_long", cutoff, retention.rows)
    if is_long:
        tx.run("prune_feed", cutoff, retention.rows, _MOST_DELETED)
