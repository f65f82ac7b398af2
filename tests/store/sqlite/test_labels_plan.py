"""Among very many tasks with a label, a page is read by index: the tasks of the page, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import apsw
import pytest

from holdfast.model.queries import TaskFilter
from holdfast.model.transitions import OPEN
from holdfast.store.cursor import to_cursor
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.listings import count_query, page_query
from holdfast.store.sqlite.migration import migrate

TASKS, OPEN_ONES = 20_000, 100
"""Two tenants in turn. Only the oldest tasks are open, so that they are the last ones of a listing."""
PAGE = 50

FILL = """
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?1)
    INSERT INTO tasks (id, name, agent_id, queue, priority, input_digest, search, state, rank, available_at,
                       created_at, updated_at, finished_at, labels)
    SELECT format('t%07d', n), 'job', 'a', 'q', 0, '', '', iif(n < ?2, 'pending', 'completed'), 0, 0, n, n,
           iif(n < ?2, NULL, n),
           CAST(iif(n % 2, '{"tenant":"acme"}', '{"kind":"rare","tenant":"globex"}') AS BLOB)
    FROM numbers
"""

ACME = {"tenant": "acme"}


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    made = connect(":memory:", durable=False)
    migrate(made, ":memory:")
    made.execute(FILL, (TASKS, OPEN_ONES))
    made.execute("INSERT INTO inputs (task_id, user_input) SELECT id, x'31' FROM tasks")
    return made


def looked_up(connection: apsw.Connection, where: TaskFilter, after: str | None = None) -> tuple[list[str], int]:
    """Return the ids of a page, and how many instructions of its machine it took SQLite to find them."""
    sql, values = page_query(where, after=after, newest_first=True, limit=PAGE)
    ticks = 0

    def tick() -> bool:
        nonlocal ticks
        ticks += 1
        return False

    connection.set_progress_handler(tick, 100)
    try:
        rows = list(connection.execute(sql, values))
    finally:
        connection.set_progress_handler(None)
    return [str(row[0]) for row in rows], ticks * 100


def test_a_page_reads_its_own_tasks_alone(connection: apsw.Connection) -> None:
    """However many others have the label; also the open ones, although all of them are older than the others."""
    newest = [f"t{n:07}" for n in range(TASKS - 1, 0, -1) if n % 2]
    middle = to_cursor(datetime.fromtimestamp(0, UTC), "t")  # before all of them
    for where, expected in (
        (TaskFilter(labels=ACME), newest),
        (TaskFilter(labels=ACME, states=OPEN), [one for one in newest if int(one[1:]) < OPEN_ONES]),
        (TaskFilter(labels={"kind": "rare", "tenant": "globex"}), [f"t{n:07}" for n in range(TASKS - 2, -1, -2)]),
        (TaskFilter(labels={"kind": "none", **ACME}), []),
    ):
        found, instructions = looked_up(connection, where)
        assert found == expected[: PAGE + 1], where
        assert instructions < 30_000, where
        found, instructions = looked_up(connection, where, after=middle)
        assert found == [], where
        assert instructions < 30_000, where


def test_the_index_leads(connection: apsw.Connection) -> None:
    for where, index in (
        (TaskFilter(labels=ACME), "task_labels_by_age"),
        (TaskFilter(labels=ACME, states=OPEN), "task_labels_open"),
    ):
        for sql, values in (page_query(where, after=None, newest_first=True, limit=PAGE), count_query(where)):
            plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
            assert plan[0].startswith(f"SEARCH l USING COVERING INDEX {index} (name=? AND value=?"), plan
            assert not [line for line in plan if line.startswith("SCAN")], plan
            assert sql.startswith("SELECT t.state") or "USE TEMP B-TREE FOR ORDER BY" not in plan, plan


def test_where_few_tasks_fit_their_own_index_leads(connection: apsw.Connection) -> None:
    for where, index in (
        (TaskFilter(labels=ACME, parent_id="p"), "tasks_children"),
        (TaskFilter(labels=ACME, name="job", key="k"), "tasks_by_key"),
        (TaskFilter(labels=ACME, owner="w"), "tasks_owned"),
    ):
        sql, values = page_query(where, after=None, newest_first=True, limit=PAGE)
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        assert any(f"SEARCH t USING INDEX {index}" in line for line in plan), plan
        assert any(line.endswith("USING PRIMARY KEY (task_id=? AND name=?)") for line in plan), plan
