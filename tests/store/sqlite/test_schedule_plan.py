"""Among very many schedules and tasks, the next tick and what is due are read by index."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.sql import QUERIES

MANY = 20_000
NOW = 10**15

FILL = """
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?1)
    INSERT INTO schedules (name, spec, anchored_at, tick_at, due_at, waits_for_last, declared, declared_by, created_at,
                           revision)
    SELECT format('s%06d', n), x'31', 0, 0, iif(n % 2, ?2 + n, NULL), 0, 0, NULL, 0, 1 FROM numbers
"""


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    made = connect(":memory:", durable=False)
    migrate(made, ":memory:")
    made.execute(FILL, (MANY, NOW))
    made.execute("INSERT INTO workers VALUES ('w', '', 1, 'live', 0, x'7b7d', 0, 0, '', 0, 0)")
    made.execute("UPDATE schedules SET declared = 1, declared_by = 'w' WHERE name < 's000010'")
    return made


def test_the_next_tick_is_at_the_end_of_an_index(connection: apsw.Connection) -> None:
    [(next_due, next_tick)], instructions = counted(connection, "next_due")
    assert (next_due, next_tick) == (None, NOW + 1)
    assert instructions < 2_000


def test_what_is_due_is_read_by_index(connection: apsw.Connection) -> None:
    """A page of it, with the last task and the worker of each row."""
    rows, instructions = counted(connection, "due_schedules", NOW + MANY // 2, 10)
    assert [row[0] for row in rows] == [f"s{2 * n + 1:06}" for n in range(10)]
    assert instructions < 10_000


def counted(connection: apsw.Connection, name: str, *values: Any) -> tuple[list[Any], int]:  # noqa: ANN401
    """Return the rows of a query, and how many of its instructions SQLite has run."""
    instructions = 0

    def note(event: dict[str, Any]) -> None:
        nonlocal instructions
        instructions += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
    rows = list(connection.execute(QUERIES[name], values))
    connection.trace_v2(0, None)
    return rows, instructions
