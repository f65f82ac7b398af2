"""Among very many pending tasks, a page of the queue is read by index: a page of each line, and nothing else."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.sql import QUERIES

READY, DELAYED = 20_000, 5_000
LINES, LINES_OF_ONE_QUEUE = 20, 4
PAGE = 50
NOW = 10**15

FILL = """
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?1 + ?2)
    INSERT INTO tasks (id, name, agent_id, queue, priority, input_digest, search, state, ready, rank, available_at,
                       created_at, updated_at, held, limits, waits_for)
    SELECT format('t%06d', n), 'job ' || (n % ?4), 'a', 'queue ' || (n % ?3 / ?4), 0, '', '', 'pending', n < ?1,
           ?5 + n - ?1 + 1, ?5 + n - ?1 + 1, 0, 0, n % 2 * 2,
           iif(n % 2, CAST('["key"]' AS BLOB), NULL), iif(n % 2, 'key', NULL)
    FROM numbers
"""
"""The delayed ones behind the others, all of them by id in the order of the queue. Half of them wait for a limit."""


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    made = connect(":memory:", durable=False)
    migrate(made, ":memory:")
    made.execute(FILL, (READY, DELAYED, LINES, LINES_OF_ONE_QUEUE, NOW))
    made.execute("INSERT INTO inputs (task_id, user_input) SELECT id, x'31' FROM tasks")
    return made


FRONT = (0, "", NOW, chr(0x10FFFF))
MIDDLE = (NOW - READY // 2, "", NOW, chr(0x10FFFF))
AMONG_THE_DELAYED = (2 * NOW, "", NOW + DELAYED // 2, "")


@pytest.mark.parametrize("queue", [None, "queue 3"])
@pytest.mark.parametrize(
    ("begin", "first"),
    [(FRONT, 0), (MIDDLE, READY // 2 - 1), (AMONG_THE_DELAYED, READY + DELAYED // 2 - 1)],
    ids=["front", "middle", "delayed"],
)
def test_a_page_of_a_long_queue_is_read_by_index(
    connection: apsw.Connection, queue: str | None, begin: tuple[Any, ...], first: int
) -> None:
    """However long the queue is, it takes SQLite a few instructions for each task of a page of each line."""
    rows, instructions = counted(connection, (queue, NOW, *begin, PAGE + 1))
    numbers = [
        n for n in range(first, first + LINES * PAGE) if queue in {None, f"queue {n % LINES // LINES_OF_ONE_QUEUE}"}
    ]
    assert [RECORDS.task(*task).id for _, _, *task in rows] == [f"t{number:06}" for number in numbers[: PAGE + 1]]
    assert instructions < 50_000


def test_no_part_of_a_queue_is_scanned(connection: apsw.Connection) -> None:
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES['queued']}", (None,) * 7)]
    assert [line for line in plan if line.startswith("SCAN tasks") or "AUTOMATIC" in line] == []
    assert [line for line in plan if "tasks_delayed" in line] == [
        "SEARCH tasks USING INDEX tasks_delayed (available_at<?)",
        "SEARCH tasks USING INDEX tasks_delayed ((available_at,id)>(?,?))",
    ]
    for index in ("tasks_ready", "tasks_in_lines_of_queue"):
        assert f"SEARCH tasks USING INDEX {index} (queue=? AND name=? AND (rank,id)>(?,?))" in plan


def counted(connection: apsw.Connection, values: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], int]:
    """Return the rows, and how many instructions of its machine it took SQLite to find them."""
    ticks = 0

    def tick() -> bool:
        nonlocal ticks
        ticks += 1
        return False

    connection.set_progress_handler(tick, 100)
    try:
        rows = list(connection.execute(QUERIES["queued"], values))
    finally:
        connection.set_progress_handler(None)
    return rows, ticks * 100
