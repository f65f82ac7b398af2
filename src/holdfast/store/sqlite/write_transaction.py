"""One write transaction under way: the named queries, the time it goes by, and the hints to send once it is durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.store.records import Row
from holdfast.store.sqlite.rows import TASK_COLUMNS, TaskRow, column_values, task_row
from holdfast.store.sqlite.sql import QUERIES

_WORTH_A_HINT = frozenset({"moves", "version", "cancel_requested"})


class WriteTransaction:
    """What the verbs work with. It lives between BEGIN IMMEDIATE and COMMIT, and no other process writes meanwhile."""

    def __init__(
        self, connection: apsw.Connection, *, now: int, boot: int, boot_id: str, stalled_until: int | None = None
    ) -> None:
        """All times are microseconds; ``boot`` is on the boot clock named by ``boot_id``.

        ``stalled_until`` is when, on that clock, everybody last came out of a long wait for the database, if they did.
        """
        self._connection = connection
        self._cursor = connection.cursor()
        self.now = now
        self.boot = boot
        self.boot_id = boot_id
        self.stalled_until = stalled_until
        self.hints: set[str] = set()
        self.last_task: tuple[str, int] | None = None
        """A task that this transaction has written, and the revision that it has now."""

    def all(self, query: str, *values: Any) -> list[Row]:  # noqa: ANN401 - whatever SQLite can bind
        """Run a named query and return its rows."""
        return list(self._cursor.execute(QUERIES[query], values))

    def first(self, query: str, *values: Any) -> Row | None:  # noqa: ANN401
        """Run a named query and return its first row, if there is one."""
        rows = self.all(query, *values)
        return rows[0] if rows else None

    def run(self, query: str, *values: Any) -> None:  # noqa: ANN401
        """Run a named query for what it changes."""
        self._cursor.execute(QUERIES[query], values)

    def changes(self, query: str, *values: Any) -> int:  # noqa: ANN401
        """Run a named query and return how many rows it changed."""
        self._cursor.execute(QUERIES[query], values)
        return self._connection.changes()

    def run_many(self, query: str, rows: Sequence[Row]) -> None:
        """Run a named query once for each row of values."""
        if rows:
            self._cursor.executemany(QUERIES[query], rows)

    def all_many(self, query: str, rows: Sequence[Row]) -> list[Row]:
        """Run a named query once for each row of values and return the rows of all, in order."""
        return list(self._cursor.executemany(QUERIES[query], rows))

    def statement(self, sql: str) -> None:
        """Run a bare statement, such as a savepoint."""
        self._cursor.execute(sql)

    def task(self, task_id: str) -> TaskRow | None:
        """Read the changing part of a task."""
        row = self.first("task_row", task_id)
        return None if row is None else task_row(row)

    def save(self, row: TaskRow) -> None:
        """Write what changed of a task, and only that: SQLite rewrites every index that a SET clause names."""
        values = column_values(row)
        changed = [place for place, value in enumerate(values) if value != row.stored[place]]
        if not changed:
            return
        assignments = ", ".join(f"{TASK_COLUMNS[place]} = ?" for place in changed)
        self._cursor.execute(
            f"UPDATE tasks SET {assignments} WHERE id = ?",  # noqa: S608 - our own column names
            (*(values[place] for place in changed), row.id),
        )
        self._note(row, {TASK_COLUMNS[place] for place in changed})
        row.stored = values
        self.last_task = row.id, row.revision

    def _note(self, row: TaskRow, changed: set[str]) -> None:
        if row.ready and "ready" in changed:
            self.hints.add(f"queue:{row.queue}")
        if not changed.isdisjoint(_WORTH_A_HINT):
            self.hints.add(f"task:{row.id}")
