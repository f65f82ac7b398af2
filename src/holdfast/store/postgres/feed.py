"""The feed: reading it, and deleting what is kept no longer. Migration 0034 has what writes it, and the passes."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final, NamedTuple

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
from holdfast.model.task import JsonValue
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.parameters import TextArray
from holdfast.store.records import Row, value_or_trouble

_MICROSECOND: Final = timedelta(microseconds=1)
_MOST_DELETED: Final = 20_000
"""Rows at once."""

_LOOK_EVERY: Final = 60.0
_BEGINNING: Final = -1
"""What read_feed() takes for the place where the feed begins."""


class _Entry(NamedTuple):
    """One event as it is stored."""

    place: FeedPlace
    at: Any
    kind: str
    task_id: str | None
    round: int
    values: list[Any]


async def read_feed(db: Database, after: str | None, limit: int) -> FeedPage:
    """See FeedVerbs."""
    if after is None or after == OLDEST:
        [(number, mark, row, *_)] = await _rows(db, None if after is None else _BEGINNING, None, 0, 1)
        return FeedPage([], str(FeedPlace(number, row, 0, mark)))
    place = read_cursor(after)
    # Entry 0: all of its row was read. Otherwise so many of its entries, and the row is read again.
    behind = place.row - 1 if place.entry else place.row
    rows = await _rows(db, place.number, place.mark, behind, limit)
    if rows and rows[0][2] is None:
        raise expired_cursor(after) if rows[0][1] == "older" else lost_cursor(after)
    entries = [entry for row in rows for entry in _entries(row)]
    if place.entry and entries and entries[0].place.row == place.row:
        del entries[: place.entry]
    tasks = await _tasks(db, {entry.task_id for entry in entries if entry.task_id is not None})
    reports = await _reports(db, [entry for entry in entries if entry.kind == "progress"])
    events = [_event(entry, tasks, reports) for entry in entries]
    return FeedPage(events, events[-1].cursor if events else after)


async def _rows(db: Database, place: int | None, mark: str | None, behind: int, limit: int) -> list[Row]:
    rows = await db.fetch("read_feed", place, mark, behind, limit, db.at())
    if rows and rows[0][1] == "begin":  # in a transaction of its own
        await db.fetch("begin_feed")
        rows = await db.fetch("read_feed", place, mark, behind, limit, db.at())
    return rows


def _entries(row: Row) -> list[_Entry]:
    number, mark, seq, at, stored = row
    last = len(stored)
    return [
        _Entry(FeedPlace(number, seq, index if index < last else 0, mark), at, kind, task_id, of_round or 0, values)
        for index, (kind, task_id, of_round, *values) in enumerate(stored, 1)
    ]


async def _tasks(db: Database, task_ids: Collection[str]) -> dict[str, Row]:
    if not task_ids:
        return {}
    return {row[0]: row for row in await db.fetch("feed_tasks", TextArray(task_ids))}


async def _reports(db: Database, entries: list[_Entry]) -> dict[tuple[str, int], JsonValue]:
    if not entries:
        return {}
    channels = TextArray([f"task:{entry.task_id}" for entry in entries])
    numbers = [int(entry.values[0]) for entry in entries]
    rows = await db.fetch("feed_payloads", channels, numbers, LONGEST_PROGRESS)
    return {(channel, number): value_or_trouble(payload, "progress") for channel, number, payload in rows}


def _event(entry: _Entry, tasks: dict[str, Row], reports: dict[tuple[str, int], JsonValue]) -> FeedEvent:
    _, name, queue, labels = tasks.get(entry.task_id or "", (None, None, None, None))
    report = reports.get((f"task:{entry.task_id}", int(entry.values[0]))) if entry.kind == "progress" else None
    return FeedEvent(
        cursor=str(entry.place),
        kind=entry.kind,
        at=entry.at,
        task_id=entry.task_id,
        name=name,
        queue=queue,
        labels=labels or {},
        round=entry.round,
        data=data_of(entry.kind, entry.values, report),
    )


async def set_feed_retention(db: Database, retention: FeedRetention) -> None:
    """See FeedVerbs."""
    await db.fetch("set_feed_retention", retention.age // _MICROSECOND, retention.rows)


async def feed_retention(db: Database) -> FeedRetention:
    """See FeedVerbs."""
    for kept_for, kept_rows in await db.fetch("feed_retention"):
        return FeedRetention(age=timedelta(microseconds=kept_for), rows=kept_rows)
    return FeedRetention()


async def prune_feed(db: Database) -> None:
    """Delete what is kept no longer: a look once a minute, and the next sweep goes on where there is more."""
    if time.monotonic() < db.prunes_feed_at and db.at() is None:
        return
    [(deleted,)] = await db.fetch("prune_feed", _MOST_DELETED, db.at())
    db.prunes_feed_at = time.monotonic() + (0 if deleted else _LOOK_EVERY)
