"""load: a task with everything a replay needs, in one statement or in pages; and the journal line by line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import starmap
from typing import Final, TypeVar

import psycopg

from holdfast.model.errors import NotFound
from holdfast.model.queries import Loaded
from holdfast.model.step import Step
from holdfast.store.postgres.connections import PostgresConnection, Row, with_cancel
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.errors import translate
from holdfast.store.postgres.records import RECORDS

T = TypeVar("T")

PAGE_BYTES: Final = 8 << 20
"""What is read at once. The event loop stands still while it is decoded, and no answer may have a row of 1 GB."""

ROW_BYTES: Final = 16 << 10
"""What a row counts besides its payloads, so that a page of small ones ends as well."""

_FIRST_PAGE, _LARGEST_PAGE = 8, PAGE_BYTES // ROW_BYTES
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL idle_in_transaction_session_timeout = 60000"


async def load(db: Database, task_id: str, after: int) -> Loaded:
    """See WorkVerbs."""
    found = await db.fetch("load", task_id, after, ROW_BYTES, PAGE_BYTES)
    if not found:
        return await _load_in_pages(db, task_id, after)
    [task], steps, effects, patches, checkpoint, approvals, accounts, reservations = found[0]
    return Loaded(
        task=RECORDS.task(*task),
        steps=tuple(starmap(RECORDS.step, steps)),
        effects=tuple(starmap(RECORDS.effect, effects)),
        patches=tuple(starmap(RECORDS.patch, patches)),
        checkpoint=None if checkpoint is None else RECORDS.checkpoint(*checkpoint),
        approvals=tuple(starmap(RECORDS.approval, approvals)),
        accounts=tuple(starmap(RECORDS.account, accounts)),
        reservations=tuple(starmap(RECORDS.reservation, reservations)),
    )


async def _load_in_pages(db: Database, task_id: str, after: int) -> Loaded:
    """Read it part by part, in a transaction that sees one moment."""
    async with _snapshot(db) as connection:
        rows = await _all(db, connection, lambda *row: row, "task", task_id)
        if not rows:
            raise NotFound("task", task_id)
        task = RECORDS.task(*rows[0])
        checkpoints = await _all(db, connection, RECORDS.checkpoint, "newest_checkpoint", task_id)
        version = checkpoints[0].version if checkpoints else 0
        return Loaded(
            task=task,
            steps=await _all(db, connection, RECORDS.step, "journal", task_id, task.round, after),
            effects=await _all(db, connection, RECORDS.effect, "task_effects", task_id),
            patches=await _all(db, connection, RECORDS.patch, "patches", task_id, version),
            checkpoint=checkpoints[0] if checkpoints else None,
            approvals=await _all(db, connection, RECORDS.approval, "task_approvals", task_id),
            accounts=await _all(db, connection, RECORDS.account, "accounts", task_id),
            reservations=await _all(db, connection, RECORDS.reservation, "task_reservations", task_id),
        )


@asynccontextmanager
async def _snapshot(db: Database) -> AsyncIterator[PostgresConnection]:
    """Lend a connection on which everything is of one moment."""
    db.open_connections()
    assert db.lendable is not None  # noqa: S101 - opened with the others
    async with db.lendable.lent(_BEGIN) as connection:
        try:
            yield connection
        except psycopg.Error as error:
            raise translate(error, db.where) from error
        finally:
            with suppress(psycopg.Error):  # nothing was written: a connection that is lost has ended it, too
                await connection.execute(b"COMMIT", prepare=False)


async def _all(
    db: Database, connection: PostgresConnection, make: Callable[..., T], query: str, *values: object
) -> tuple[T, ...]:
    """Return the rows of a named query, read in pages through a cursor of the database."""
    await _run(connection, f"DECLARE page NO SCROLL CURSOR FOR {db.queries[query]}", values)
    found: list[T] = []
    count = _FIRST_PAGE
    while True:
        rows = await _run(connection, f"FETCH FORWARD {count} FROM page")
        found += starmap(make, rows)
        if len(rows) < count:
            break
        count = _next_count(rows)
    await _run(connection, "CLOSE page")
    return tuple(found)


async def steps(db: Database, task_id: str) -> list[Step]:
    """See ReadVerbs."""
    return await db.all(RECORDS.step, "steps", task_id)


async def step(db: Database, task_id: str, key: str, of_round: int) -> Step | None:
    """See ReadVerbs."""
    return await db.first(RECORDS.step, "step", task_id, of_round, key)


async def last_steps(db: Database, task_ids: Collection[str]) -> dict[str, Step]:
    """See ReadVerbs."""
    return {task_id: RECORDS.step(*line) for task_id, *line in await db.fetch("last_steps", list(task_ids))}


def _next_count(rows: Sequence[Row]) -> int:
    """Say how many rows the next page should have, judged by the last one."""
    size = sum(len(value) for row in rows for value in row if isinstance(value, bytes))
    return max(1, min(_LARGEST_PAGE, PAGE_BYTES * len(rows) // max(size, 1)))


async def _run(connection: PostgresConnection, sql: str, values: Sequence[object] = ()) -> list[Row]:
    cursor = connection.cursor(binary=True)
    await with_cancel(cursor.execute(sql.encode(), values, prepare=False))
    return await cursor.fetchall() if cursor.rownumber is not None else []
