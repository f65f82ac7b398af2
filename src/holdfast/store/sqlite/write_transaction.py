"""One write transaction under way: the named queries, the time it goes by, and the hints to send once it is durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.store.records import Row, keys_of
from holdfast.store.sqlite.rows import TASK_COLUMNS, TaskRow, column_values, had_slot, has_slot, task_row
from holdfast.store.sqlite.sql import QUERIES

_ASSIGNMENTS = {column: f"{column} = ?" for column in TASK_COLUMNS} | {"held": "held = (held & 6) | (? & 1)"}
"""What holds a task for its limits, or until it has its turn, are the other bits. Triggers set them, so that the row at
hand may not know them."""

_WORTH_A_HINT = frozenset({"moves", "version", "cancel_requested"})
_OF_THE_SLOT = frozenset({"owner", "resting"})


class WriteTransaction:
    """What the verbs work with. It lives between BEGIN IMMEDIATE and COMMIT, and no other process writes meanwhile."""

    def __init__(
        self, connection: apsw.Connection, *, now: int, boot: int, boot_id: str, stalled_until: int | None = None
    ) -> None:
        """All times are microseconds; ``boot`` is on the boot clock named by ``boot_id``.

        ``stalled_until`` is when, on that clock, the last long wait of all processes ended, if there was one.
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
        assignments = ", ".join(_ASSIGNMENTS[TASK_COLUMNS[place]] for place in changed)
        self._cursor.execute(
            f"UPDATE tasks SET {assignments} WHERE id = ?",  # noqa: S608 - our own column names
            (*(values[place] for place in changed), row.id),
        )
        self._note(row, {TASK_COLUMNS[place] for place in changed})
        row.stored = (*values, row.is_awaited)
        self.last_task = row.id, row.revision

    def _note(self, row: TaskRow, changed: set[str]) -> None:
        gives_slot = row.is_awaited and not has_slot(row) and not changed.isdisjoint(_OF_THE_SLOT)
        if gives_slot or (row.ready and "ready" in changed):
            self.hints.add(f"queue:{row.queue}")
        if not changed.isdisjoint(_WORTH_A_HINT):
            self.hints.add(f"task:{row.id}")
        if row.limits is not None and had_slot(row) and not has_slot(row):
            self.note_free(row.limits)

    def note_free(self, limits: bytes) -> tuple[str, ...]:
        """Hint to steps that places of these limits are free; return their keys. A claim or a sweep lets tasks out."""
        keys = keys_of(limits)
        self.hints.update([f"limit:{key}" for key in keys])
        return keys
