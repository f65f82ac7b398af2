"""Among very many ended tasks, what a queue keeps no longer is read by index."""

from __future__ import annotations

import apsw
import pytest

from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.sql import QUERIES

MANY = 20_000
NOW = 10**15

FILL = """
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?1)
    INSERT INTO tasks (id, name, agent_id, queue, priority, input_digest, search, state, rank, available_at, created_at,
                       updated_at, finished_at, parent_id)
    SELECT format('t%06d', n), 'n', 'a', iif(n % 4 = 0, 'other', 'q'), 0, '', '', iif(n % 4 = 1, 'failed', 'completed'),
           0, 0, n, n, n, iif(n % 4 = 2, 't000000', NULL)
    FROM numbers
"""
"""A quarter each: in another queue, in another state, children, and those that go."""


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    made = connect(":memory:", durable=False)
    migrate(made, ":memory:")
    made.execute(FILL, (MANY,))
    return made


def test_a_batch_is_read_by_index(connection: apsw.Connection) -> None:
    """Not one of the tasks that stay is looked at."""
    rows, instructions = counted(connection, "kept_no_longer", "q", "completed", NOW, 10)
    assert [task_id for (task_id,) in rows] == [f"t{3 + 4 * n:06}" for n in range(10)]
    assert instructions < 3_000
    rows, instructions = counted(connection, "kept_no_longer", "q", "completed", 3, 10)
    assert (rows, instructions < 300) == ([], True)


def test_a_store_without_a_retention_costs_a_look(connection: apsw.Connection) -> None:
    rows, instructions = counted(connection, "due_retentions", NOW, 100, NOW)
    assert (rows, instructions < 50) == ([], True)


def counted(connection: apsw.Connection, name: str, *values: object) -> tuple[list[tuple[object, ...]], int]:
    """Return the rows of a query, and how many of its instructions SQLite has run."""
    instructions = 0

    def count() -> bool:
        nonlocal instructions
        instructions += 1
        return False

    connection.set_progress_handler(count, 1)
    try:
        rows = list(connection.execute(QUERIES[name], values))
    finally:
        connection.set_progress_handler(None)
    return rows, instructions
