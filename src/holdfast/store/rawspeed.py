"""What a database can do at best: commits of one row, or of a hundred, with nothing around them. The raw limit."""

from __future__ import annotations

import time
from pathlib import Path

import apsw

from holdfast.store.url import split_options

_TABLE = "CREATE TABLE {table} (task TEXT, n INTEGER, body {bytes}, PRIMARY KEY (task, n))"
_BODY = b'{"data":"ok","schema":1}'


def sqlite_commits(folder: Path, seconds: float, rows: int = 1) -> float:
    """Return rows a second, ``rows`` in each transaction, with the settings our store has."""
    path = folder / "raw.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("DROP TABLE IF EXISTS raw; " + _TABLE.format(table="raw", bytes="BLOB"))
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            connection.execute("INSERT INTO raw VALUES (?, ?, ?)", ("task-0123456789", done, _BODY))
            done += 1
        connection.execute("COMMIT")
    elapsed = time.perf_counter() - began
    connection.close()
    return done / elapsed


async def postgres_commits(url: str, seconds: float, rows: int = 1, *, table: str = "raw") -> float:
    """Return rows a second over one connection, ``rows`` in each statement."""
    import psycopg  # noqa: PLC0415 - an extra

    one = f"INSERT INTO {table} VALUES (%s, %s, %s)"  # noqa: S608 - a name of ours
    many = f"INSERT INTO {table} SELECT 'task-0123456789', unnest(%s::int[]), unnest(%s::bytea[])"
    url, options = split_options(url)
    async with await psycopg.AsyncConnection.connect(
        url,
        autocommit=True,
        prepare_threshold=None if options.prepare is False else 0,
        fallback_application_name="holdfast bench",
    ) as connection:
        await connection.execute(f"DROP TABLE IF EXISTS {table}")
        await connection.execute(_TABLE.format(table=table, bytes="BYTEA"))
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            numbers = list(range(done, done + rows))
            if rows == 1:
                await connection.execute(one, ("task-0123456789", done, _BODY))
            else:
                await connection.execute(many, (numbers, [_BODY] * rows))
            done += rows
        return done / (time.perf_counter() - began)
