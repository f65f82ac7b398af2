"""All rows of a database that the flow of work is made of, so that two moments of two databases can be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import psycopg

TABLES = ("tasks", "inputs", "outcomes", "transitions", "accounts", "pauses", "task_labels", "schedules", "workers")

_GENERATED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OF_THE_MOMENT = re.compile("event_|boot_id|expires")
"""Columns that depend on the machine or on other transactions of the server."""

Rows = Counter[str]


def rows_of(url: str) -> Rows:
    """Return every row, as text, with one word in place of each generated id."""
    found: Rows = Counter()
    for table, columns, rows in _in_postgres(url) if url.startswith("postgresql") else _in_sqlite(url):
        for row in rows:
            values = {c: v for c, v in zip(columns, row, strict=True) if not _OF_THE_MOMENT.match(c)}
            found[_GENERATED.sub("<id>", f"{table}: {values}")] += 1
    return found


Table = tuple[str, Sequence[str], Sequence[tuple[Any, ...]]]


def _in_postgres(url: str) -> Iterator[Table]:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in (*TABLES, "task_keys", "shown_queues"):
            cursor = connection.execute(f"SELECT * FROM holdfast.{table}".encode())
            yield table, [column.name for column in cursor.description or ()], cursor.fetchall()


def _in_sqlite(url: str) -> Iterator[Table]:
    connection = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for table in (*TABLES, "queues"):
            columns = [str(name) for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
            yield table, columns, list(connection.execute(f"SELECT * FROM {table}"))
    finally:
        connection.close()


def change(before: Rows, after: Rows) -> tuple[Rows, Rows]:
    """Return which rows are gone, and which are new."""
    return before - after, after - before
