"""Among very many pending tasks, a page of the queue is read by index: a page of each line, and nothing else."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast.model.queries import Page
from holdfast.model.task import Task
from holdfast.store.cursor import QueuePlace, from_queue_cursor
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.sql import QUERIES
from holdfast.testing.contract._support import row
from tests.store.postgres.support import execute

READY, DELAYED = 80_000, 20_000
LINES, LINES_OF_ONE_QUEUE = 20, 4
PAGE = 50

FILL = f"""
    INSERT INTO holdfast.tasks (id, name, agent_id, state, updated_at, queue, priority, available_at, ready, rank)
    SELECT 't' || lpad(n::text, 6, '0'), 'job ' || n % {LINES_OF_ONE_QUEUE}, 'x', 'pending', now(),
           'queue ' || n % {LINES} / {LINES_OF_ONE_QUEUE}, 0, a.at, (a.at <= now())::int, a.at
    FROM generate_series(0, {READY + DELAYED - 1}) AS n,
         LATERAL (
             SELECT now() + (n - {READY}) * interval '1 second' + (n >= {READY})::int * interval '1 hour'
         ) AS a (at)
"""
"""The delayed ones behind the others, and all of them by id in the order of the queue."""


@pytest.fixture
def filled(url: str, store: PostgresStore) -> str:
    assert store.capabilities.durable
    inputs = "INSERT INTO holdfast.inputs SELECT id, now(), '1', '', '' FROM holdfast.tasks"
    execute(url, FILL, inputs, "VACUUM ANALYZE")
    return url


def check_plans(url: str, queue: str | None, begin: QueuePlace) -> None:
    """Whether it is planned for each call or for all: no table is read as a whole, and of no index more than pages."""
    values = (begin.as_of, queue, *begin.due_after, *begin.delayed_after, PAGE + 1)
    literals = ", ".join("NULL" if value is None else f"'{value}'" for value in values)
    types = "timestamptz, text, timestamptz, text, timestamptz, text, bigint"
    query = QUERIES["queued"].replace("{schema}", "holdfast")
    for plans in ("force_custom_plan", "force_generic_plan"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"SET plan_cache_mode = {plans}".encode())
            connection.execute(f"PREPARE question ({types}) AS {query}".encode())
            explained = connection.execute(f"EXPLAIN ANALYZE EXECUTE question ({literals})".encode())
            plan = "\n".join(row[0] for row in explained)
        assert not re.search("Seq Scan on (tasks|inputs)", plan), plan
        assert "tasks_ready" in plan, plan
        assert "tasks_delayed" in plan, plan
        lines = LINES if queue is None else LINES_OF_ONE_QUEUE
        counted = re.findall(r"Scan .*actual .*rows=([\d.]+) loops=(\d+)", plan)
        assert max(float(rows) * int(loops) for rows, loops in counted) <= (PAGE + 1) * lines, plan
        removed = map(int, re.findall(r"Rows Removed by Filter: (\d+)", plan))
        assert max(removed, default=0) <= PAGE * LINES, plan  # delayed tasks of other queues, passed on the way


def ids(page: Page[Task]) -> list[str]:
    return [task.id for task in page.items]


def expected(queue: str | None, numbers: range) -> list[str]:
    return [f"t{n:06}" for n in numbers if queue in {None, f"queue {n % LINES // LINES_OF_ONE_QUEUE}"}]


async def test_a_page_of_a_long_queue_is_read_by_index(filled: str, store: PostgresStore) -> None:
    for begun_at, left in ((0, "all"), (READY, "delayed")):
        for queue in (None, "queue 3"):
            with row(str(queue), left):
                first = await store.queued(queue=queue, limit=PAGE)
                second = await store.queued(queue=queue, limit=PAGE, after=first.next)
                assert ids(first) + ids(second) == expected(queue, range(begun_at, READY + DELAYED))[: 2 * PAGE]
                for begin in (QueuePlace(), from_queue_cursor(first.next)):
                    check_plans(filled, queue, begin)
        execute(filled, "DELETE FROM holdfast.tasks WHERE ready = 1", "VACUUM ANALYZE")
