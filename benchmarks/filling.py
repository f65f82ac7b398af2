"""A million tasks in a minute: a task that the engine made is copied inside the database, row by row.

The copies differ in their ids and their ranks; for the indexes they are a million normal tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import psycopg
from psycopg import sql

from benchmarks.subject import QUEUE
from holdfast import Context, Handle, Holdfast
from holdfast.store.sqlite.connection import prove_version

_AT_ONCE = 100_000
"""Copies in one transaction."""

_TASK_TABLES = {"tasks": "id", "inputs": "task_id", "outcomes": "task_id", "transitions": "task_id"}
"""What is stored for a task without steps, and the column that names it."""


async def add_finished(url: str, count: int) -> None:
    """Add completed tasks to the queue that is going to be drained."""
    hold = _hold(url)
    async with hold:
        handle: Handle[None] = await hold.submit("noop", 0, queue=QUEUE)
        async with hold.worker():
            await handle.result(timeout=60)
    _multiply(url, [handle.id], count)


async def add_pending(url: str, count: int) -> None:
    """Add pending tasks: half of them wait in another queue, half in the same one at a lower priority."""
    hold = _hold(url)
    async with hold:
        elsewhere: Handle[None] = await hold.submit("noop", 0, queue="elsewhere")
        later: Handle[None] = await hold.submit("noop", 0, queue=QUEUE, priority=-50)
    _multiply(url, [elsewhere.id, later.id], count // 2)


def _hold(url: str) -> Holdfast:
    hold = Holdfast(url)

    @hold.task(queue=QUEUE)
    async def noop(ctx: Context, weight: int) -> None: ...

    return hold


def _multiply(url: str, task_ids: Sequence[str], count: int) -> None:
    multiply = _multiply_in_postgres if url.startswith("postgresql") else _multiply_in_sqlite
    multiply(url, task_ids, count)


def _multiply_in_sqlite(url: str, task_ids: Sequence[str], count: int) -> None:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    prove_version(connection)
    connection.pragma("synchronous", "off")
    for start in range(1, count + 1, _AT_ONCE):
        with connection:
            for table, id_column in _TASK_TABLES.items():
                columns = [str(name) for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
                copied = {id_column: f"{id_column} || printf('-%07d', n)", "rank": "rank + n"}
                values = ", ".join(copied.get(column, column) for column in columns)
                statement = f"""
                    WITH RECURSIVE numbers (n) AS (VALUES (:first) UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
                    INSERT INTO {table} ({", ".join(columns)})
                    SELECT {values} FROM {table}, numbers WHERE {id_column} = :task"""  # noqa: S608 - our own names
                for task_id in task_ids:
                    connection.execute(
                        statement, {"first": start, "last": min(start + _AT_ONCE - 1, count), "task": task_id}
                    )
    connection.pragma("wal_checkpoint(TRUNCATE)")
    connection.close()


def _multiply_in_postgres(url: str, task_ids: Sequence[str], count: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET search_path = holdfast")
        for table, id_column in _TASK_TABLES.items():
            listed = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(table)))
            columns = [column.name for column in listed.description or ()]
            copied = {
                id_column: sql.SQL("{} || to_char(n, 'FM-0000000')").format(sql.Identifier(id_column)),
                "rank": sql.SQL("rank + n * interval '1 microsecond'"),
            }
            statement = sql.SQL(
                "INSERT INTO {table} ({columns}) SELECT {values} FROM {table}, generate_series(1, %s) n WHERE {id} = %s"
            ).format(
                table=sql.Identifier(table),
                columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
                values=sql.SQL(", ").join(copied.get(column, sql.Identifier(column)) for column in columns),
                id=sql.Identifier(id_column),
            )
            for task_id in task_ids:
                connection.execute(statement, (count, task_id))
            # Do what autovacuum would have done for so many tasks, and keep a checkpoint out of the measurement.
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(table)))
        connection.execute("CHECKPOINT")
