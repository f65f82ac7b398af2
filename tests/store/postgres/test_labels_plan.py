"""Among very many tasks with a label, a page is read by index: the tasks of the page, and nothing else."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast.model.queries import TaskFilter
from holdfast.model.transitions import OPEN
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.listings import page_query
from tests.store.postgres.support import execute

TASKS, OPEN_ONES = 60_000, 100
"""Two tenants in turn. Only the oldest tasks are open, so that they are the last ones of a listing."""
PAGE = 50

INPUTS = "INSERT INTO holdfast.inputs SELECT id, updated_at, '1', '', '' FROM holdfast.tasks"
ACME = {"tenant": "acme"}


def fill(tasks: int) -> str:
    """Return the statement that makes so many."""
    return f"""
    INSERT INTO holdfast.tasks (id, name, agent_id, state, updated_at, finished_at, queue, priority, available_at,
                                ready, rank, labels)
    SELECT 't' || lpad(n::text, 7, '0'), 'job', 'x', CASE WHEN n < {OPEN_ONES} THEN 'pending' ELSE 'completed' END,
           a.at, CASE WHEN n < {OPEN_ONES} THEN NULL ELSE a.at END, 'q', 0, a.at, 0, a.at,
           CASE n % 2 WHEN 1 THEN '{{"tenant": "acme"}}'::jsonb ELSE '{{"tenant": "globex", "kind": "rare"}}'::jsonb END
    FROM generate_series(0, {tasks - 1}) AS n, LATERAL (SELECT now() + n * interval '1 second') AS a (at)
"""


@pytest.fixture
def filled(url: str, store: PostgresStore) -> str:
    assert store.capabilities.durable
    execute(url, fill(TASKS), INPUTS, "VACUUM ANALYZE")
    return url


def plan_of(url: str, where: TaskFilter) -> str:
    sql, values = page_query(where, after=None, newest_first=True, limit=PAGE)
    sql = re.sub(r"\$\d+", "%s", sql.replace("{schema}", "holdfast"))
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        explained = connection.execute(f"EXPLAIN ANALYZE {sql}".encode(), values)
        return "\n".join(row[0] for row in explained)


async def test_a_page_reads_its_own_tasks_alone(filled: str, store: PostgresStore) -> None:
    """However many others have the label; also the open ones, although all of them are older than the others."""
    newest = [f"t{n:07}" for n in range(TASKS - 1, 0, -1) if n % 2]
    for where, index, expected in (
        (TaskFilter(labels=ACME), "task_labels_by_age", newest),
        (TaskFilter(labels=ACME, states=OPEN), "task_labels_open", [one for one in newest if int(one[1:]) < OPEN_ONES]),
        (
            TaskFilter(labels={"kind": "rare", "tenant": "globex"}),
            "task_labels_by_age",
            [f"t{n:07}" for n in range(TASKS - 2, -1, -2)],
        ),
    ):
        first = await store.find(where, limit=PAGE)
        second = await store.find(where, limit=PAGE, after=first.next) if first.next else first
        found = [task.id for page in dict.fromkeys((first, second)) for task in page.items]
        assert found == expected[: len(found)], where
        plan = plan_of(filled, where)
        assert index in plan, plan
        assert not re.search("Seq Scan on (tasks|inputs|task_labels)", plan), plan
        assert "Sort" not in plan, plan
        counted = re.findall(r"Scan .*actual .*rows=([\d.]+) loops=(\d+)", plan)
        assert max(float(rows) * int(loops) for rows, loops in counted) <= PAGE + 1, plan


async def test_labels_go_with_their_tasks(url: str, store: PostgresStore) -> None:
    """Whatever deletes tasks."""
    assert store.capabilities.durable
    execute(url, fill(2 * OPEN_ONES), INPUTS, "DELETE FROM holdfast.tasks WHERE id > 't0000099'")
    [(left,)] = execute(url, "SELECT count(*) FROM holdfast.task_labels")
    assert left == 150
