"""How rows are reached: HOT updates, and no scan of a large table on the hot path."""

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast.model.queries import Noun, TaskFilter
from holdfast.model.transitions import TaskState
from holdfast.store.idparts import about
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.listings import page_query
from holdfast.store.postgres.sql import QUERIES
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import claimed, execute, held, step

MANY = 100_000


async def test_step_commits_are_hot_updates(url: str, store: PostgresStore) -> None:
    """No index is touched when a step is committed, alone or in a batch.

    Few enough that all versions of the two rows fit into one page, should a snapshot keep the old ones alive:
    a row whose page is full has to move, which is not a hot update either.
    """
    claims = await claimed(store, "a", "b")
    for number in range(1, 9):
        await store.commit([held(claims[0], number, step(f"s{number}"))])
    for number in range(9, 13):
        await store.commit(
            [held(claims[0], number, step(f"s{number}")), held(claims[1], number - 8, step(f"s{number}"))]
        )
    await store.close()
    updates = hot = 0
    while updates < 18:  # statistics arrive a moment after the session ends
        [(updates, hot)] = execute(
            url, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tasks'"
        )
    assert (updates, hot) == (18, 16)  # the claim of the two tasks moved them, and that touches indexes


@pytest.fixture(scope="module")
def crowded(postgres16: PostgresServer) -> Iterator[str]:
    """A database with many tasks of each kind that a claim or a sweep could stumble over."""
    url = postgres16.create_database()
    asyncio.run(set_up(url))
    fill(url)
    yield url
    postgres16.drop_database(url)


async def set_up(url: str) -> None:
    async with PostgresStore(url):
        pass


def fill(url: str) -> None:
    execute(
        url,
        f"""
        INSERT INTO holdfast.tasks (id, name, agent_id, state, updated_at, finished_at, queue, priority,
            available_at, deadline, wake_at, owner, ready, rank)
        SELECT n::text, 'job', 'x', s.state, now(), CASE WHEN s.state = 'completed' THEN now() END, 'default', 0,
            now(), now() + interval '1 day', CASE WHEN s.state = 'waiting' THEN now() + interval '1 day' END,
            CASE WHEN s.state = 'running' THEN 'w' || n % 1000 END, (s.state = 'pending')::int, now()
        FROM generate_series(1, {MANY}) AS n,
             LATERAL (SELECT (ARRAY['completed', 'completed', 'pending', 'running', 'waiting'])[n % 5 + 1]) AS s (state)
        """,
        "INSERT INTO holdfast.inputs SELECT id, now() - id::int * interval '1 second', '1', '', '' FROM holdfast.tasks",
        "INSERT INTO holdfast.workers SELECT 'w' || n, '', 30, 'live', 0, '{}', now(), now(), now() + interval '1 day' "
        "FROM generate_series(0, 999) AS n",
    )


def queries_in(url: str, function: str) -> list[str]:
    """The SELECTs with which a function finds its rows, its variables filled in."""
    [(body,)] = execute(
        url, f"SELECT prosrc FROM pg_proc WHERE proname = '{function}' AND pronamespace = 'holdfast'::regnamespace"
    )
    found = []
    for match in re.finditer(r"ARRAY\(\s*(SELECT|WITH)", body):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(body[end], 0)
            end += 1
        found.append(body[match.start() + len("ARRAY(") : end - 1])
    values = {
        "moment": "now()",
        "most": "100",
        "queues": "ARRAY['default', 'other']",
        "names": "ARRAY['job', 'y']",
        "speaks": "2",
        "line_queues": "ARRAY['default', 'default', 'other']",
        "line_names": "ARRAY['job', 'y', 'job']",
    }
    return [re.sub(rf"\b({'|'.join(values)})\b", lambda name: values[name[1]], one) for one in found]


@pytest.mark.parametrize("analyzed", [False, True])
async def test_claims_and_sweeps_scan_no_table(crowded: str, analyzed: bool) -> None:
    """Neither with statistics nor, as in a fresh store, without."""
    if analyzed:
        execute(crowded, "VACUUM ANALYZE")
    with psycopg.connect(crowded, autocommit=True) as connection:
        # What the functions themselves set.
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            connection.execute(f"SET {setting} = off".encode())
        seen = 0
        for function in ("claimable", "wake_timers", "pass_deadlines", "make_ready", "expire_approvals"):
            for query in queries_in(crowded, function):
                if "LIMIT" not in query:
                    continue
                seen += 1
                plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN ANALYZE {query}".encode()))
                assert "Seq Scan on tasks" not in plan, plan
                assert not re.search(r"Sort +\(.*rows=\d{4,} loops", plan), plan
                read = [int(rows) for rows in re.findall(r"Scan .*on tasks.*\(actual .*rows=(\d+)", plan)]
                assert max(read, default=0) <= 200, plan
        assert seen >= 8


async def test_a_claim_reads_little_of_a_large_table(crowded: str) -> None:
    """Seen from outside: the pages that a whole call touches."""
    execute(crowded, "UPDATE holdfast.workers SET state = 'live' WHERE id = 'w1'")
    with psycopg.connect(crowded, autocommit=True) as connection:
        call = b"EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM holdfast.claim('w1', %d, 10, '{default}', '{job}', false)"
        pages = []
        for number in range(1, 9):
            plan = "\n".join(row[0] for row in connection.execute(call % number))
            pages.append(sum(map(int, re.findall(r"shared hit=(\d+)", plan.split("Planning")[0]))))
        assert min(pages) < 1000, pages


async def test_a_claim_over_many_lines_reads_one_row_for_each(crowded: str) -> None:
    """However many are asked for: those that have something ready are found through the index."""
    queues = "ARRAY(SELECT 'queue ' || n FROM generate_series(1, 200) AS n) || '{default}'"
    names = "ARRAY(SELECT 'name ' || n FROM generate_series(1, 200) AS n) || '{job}'"
    with psycopg.connect(crowded, autocommit=True) as connection:
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            connection.execute(f"SET {setting} = off".encode())
        for call in (
            f"ready_lines({queues}, {names}, 1::smallint)",
            f"claimable(20, {queues}, {names}, 1::smallint, 2, now())",
        ):
            connection.execute(f"SELECT holdfast.{call}".encode())  # plans
            explained = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS) SELECT holdfast.{call}".encode())
            plan = "\n".join(row[0] for row in explained)
            pages = sum(map(int, re.findall(r"shared hit=(\d+)", plan.split("Planning")[0])))
            assert pages < 10 * 201, plan  # a pair each would be 40,401 times some pages


FILTERS = {
    "everything": TaskFilter(),
    "one state": TaskFilter(states=frozenset({TaskState.WAITING})),
    "open": TaskFilter(states=frozenset({TaskState.PENDING, TaskState.RUNNING})),
    "ended": TaskFilter(states=frozenset({TaskState.COMPLETED})),
    "of some days": TaskFilter(created_after=datetime.now(UTC) - timedelta(hours=10)),
}


@pytest.mark.parametrize("where", FILTERS)
async def test_a_page_of_tasks_reads_little_of_a_large_table(crowded: str, where: str) -> None:
    """In the order of their age, which is kept beside the tasks: no page sorts them all."""
    execute(crowded, "ANALYZE")
    sql, values = page_query(FILTERS[where], after=None, newest_first=True, limit=50)
    with psycopg.connect(crowded, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        query = f"EXPLAIN ANALYZE {sql.replace('{schema}', 'holdfast')}".encode()
        plan = "\n".join(row[0] for row in connection.execute(query, values))
        assert "inputs_created" in plan, plan
        assert not re.search("Seq Scan on (tasks|inputs)", plan), plan
        assert max(map(int, re.findall(r"actual [^)]*rows=(\d+)", plan))) <= 1000, plan


def plan_of(url: str, query: str, types: str, values: str, *settings: str) -> str:
    """Return how a prepared statement is executed."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in settings:
            connection.execute(f"SET {setting}".encode())
        connection.execute(f"PREPARE question ({types}) AS {query.replace('{schema}', 'holdfast')}".encode())
        explained = connection.execute(f"EXPLAIN EXECUTE question ({values})".encode())
        return "\n".join(row[0] for row in explained)


@pytest.mark.parametrize("noun", Noun)
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_the_beginning_of_an_id_is_looked_up_in_an_index(crowded: str, noun: Noun, plans: str) -> None:
    """As a range from both sides, whatever the text is."""
    execute(crowded, "ANALYZE")
    # Only some of the tables are large enough to show by themselves that a scan would be wrong.
    settings = f"plan_cache_mode = {plans}", "enable_bitmapscan = off", "enable_seqscan = off"
    query = about(noun, QUERIES["ids_that_begin"])
    plan = plan_of(crowded, query, "text, bigint", "'1234', 10", *settings[: 2 if noun is Noun.TASK else 3])
    assert re.search(r"Index Only Scan using (\w+_pkey|effects_by_id)", plan), plan
    assert re.search(r"Index Cond: \(\((effect_)?id >= .* AND \((effect_)?id < ", plan), plan


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_queues_can_be_counted_without_reading_what_has_ended(crowded: str, plans: str) -> None:
    """Once that is most of the table; in this one most tasks are open, and a scan is right."""
    settings = f"plan_cache_mode = {plans}", "enable_seqscan = off"
    assert "tasks_open" in plan_of(crowded, QUERIES["queues"], "timestamptz", "NULL", *settings)
