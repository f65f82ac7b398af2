"""Among very many tasks that wait for limits, nothing reads more than it needs. A task without limits pays nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast import NewTask
from holdfast.model.flow_limit import LONGEST, SHORTEST, Limit, grain_of, validity_of
from holdfast.model.operations import Rest
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import COMPLETE, claimed, execute, held, move, outside, step

KEYS = 2_000
"""Of one limit. The first has half of all tasks, the others share the rest."""
SIZES = [60_000, pytest.param(1_000_000, marks=pytest.mark.full)]

FILL = """
    INSERT INTO holdfast.tasks (id, name, agent_id, state, updated_at, queue, priority, available_at, ready, rank,
                                limits, waits_for, held)
    SELECT 't' || lpad(n::text, 7, '0'), 'job', 'x', 'pending', a.at, 'default', 0, a.at, 1, a.at,
           ARRAY['tenant:' || k.key], 'tenant:' || k.key, 2
    FROM generate_series(0, {tasks} - 1) AS n,
         LATERAL (SELECT now() - interval '1 day' + n * interval '1 ms') AS a (at),
         LATERAL (SELECT CASE WHEN n % 2 = 0 THEN 'big' ELSE lpad((n % {keys})::text, 5, '0') END) AS k (key)
"""
INPUTS = "INSERT INTO holdfast.inputs SELECT id, updated_at, '1', '', '' FROM holdfast.tasks"
PERMITS = """
    INSERT INTO holdfast.permits (id, key, task_id, worker_id, tokens, lasts)
    SELECT 'p' || n, 'openai', 't', 'w', 1, 1 FROM generate_series(1, 20000) AS n
"""
KEY_ROWS = "INSERT INTO holdfast.limit_keys (key) SELECT DISTINCT limits[1] FROM holdfast.tasks"


@pytest.fixture(params=SIZES)
async def filled(request: pytest.FixtureRequest, url: str, store: PostgresStore) -> str:
    await store.set_limit(Limit(name="tenant", concurrency=2, each=True))
    await store.set_limit(Limit(name="openai", concurrency=3))
    await store.register(NewWorker(id="w", lease=3600))
    # Statistics of empty tables are the worst that a plan can be made with; PL/pgSQL keeps it.
    await store.sweep()
    without_triggers = "SET session_replication_role = replica"
    execute(url, without_triggers, FILL.format(keys=KEYS, tasks=request.param), INPUTS, KEY_ROWS, PERMITS)
    return url


def pages(url: str, *calls: str) -> dict[str, int]:
    """Return how many pages each call touches once its plans are made, in one session: the fewest of some calls."""
    found: dict[str, int] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for call in calls:
            counted = []
            for _ in range(6):
                explained = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM holdfast.{call}".encode())
                plan = "\n".join(row[0] for row in explained)
                counted.append(sum(map(int, re.findall(r"shared hit=(\d+)", plan.split("Planning")[0]))))
            found[call] = min(counted)
    return found


NOTE = "note_key('tenant:big')"


async def test_nothing_reads_more_than_it_needs(filled: str, store: PostgresStore) -> None:
    """Whatever is asked touches some pages, however long the lines are and however many keys have one."""
    _check_pages(filled)
    execute(filled, "UPDATE holdfast.tasks SET held = 2 WHERE held = 0", "DELETE FROM holdfast.limit_changes")
    await _check_lists(filled, store)
    await _check_claims(filled, store)


def _check_pages(filled: str) -> None:
    everything = pages(
        filled,
        "has_noted_line(now())",
        "limit_work(now())",
        "rooms('{tenant:big}', now())",
        "promote_line('tenant:big', 'default', 'job', 1::smallint, 2, 1000, now())",
        "promote_line('tenant:01999', 'default', 'job', 1::smallint, 2, 1000, now())",
        "promote(1000)",
        "look_later('{tenant:big}', now())",
        "claim('w', 0, 10, '{default}', '{job}', false)",
        "fitting('openai', '{p19999}', now())",
        "note_lines('tenant:00001', 'tenant:00003')",
    )
    assert max(everything.values()) < 300, everything


async def _check_claims(filled: str, store: PostgresStore) -> None:
    """Of a key with half of all tasks, and of keys with some; what ends makes the next one claimable."""
    execute(filled, f"SELECT holdfast.{NOTE}")
    claim = Claim(worker_id="w", number=1, limit=4, names=("job",))
    assert [one.task.id for one in await store.claim(claim)] == ["t0000000", "t0000002"]
    await store.commit([outside("t0000004", move(TaskState.CANCELLED))])
    execute(filled, "SELECT holdfast.note_lines('tenant:00001', 'tenant:01999')")
    got = await store.claim(Claim(worker_id="w", number=2, limit=50, names=("job",)))
    assert len(got) == 50
    with psycopg.connect(filled, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT holdfast.promote(1000)")
        [(in_sequence,)] = connection.execute(
            "SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE relname = 'tasks' AND schemaname = 'holdfast'"
        ).fetchall()
        connection.execute("ROLLBACK")
    assert not in_sequence


async def _check_lists(filled: str, store: PostgresStore) -> None:
    """A page of what comes next is read in order. Of the keys, those that are shown are counted, in their index."""
    execute(filled, "VACUUM ANALYZE")
    page = await store.queued(limit=50)
    assert [task.id for task in page.items] == [f"t{n:07}" for n in range(50)]
    assert (await store.queued(limit=1, after=page.next)).items[0].id == "t0000050"
    uses = await store.limit_uses("tenant", limit=3)
    assert [use.key for use in uses] == ["tenant:00001", "tenant:00003", "tenant:00005"]
    [openai] = await store.limit_uses("openai")
    assert openai.waiting == 20_000


async def test_steps_of_a_limited_task_are_hot_updates(url: str, store: PostgresStore) -> None:
    """As those of any other task."""
    await store.set_limit(Limit(name="openai", concurrency=5))
    await store.submit([NewTask(name="job", id="a", limits=("openai",))])
    await store.register(NewWorker(id="w"))
    [claim] = await store.claim(Claim(worker_id="w", number=1, limit=1, names=("job",)))
    for number in range(1, 9):
        await store.commit([held(claim, number, step(f"s{number}"))])
    await store.close()
    updates = hot = 0
    while updates < 9:  # statistics arrive a moment after the session ends
        [(updates, hot)] = execute(
            url, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tasks'"
        )
    assert (updates, hot) == (9, 8)  # it was claimed


LOOKS = """
    SELECT relname, seq_scan + coalesce(idx_scan, 0) FROM pg_stat_user_tables
    WHERE relname IN ('limits', 'limit_keys', 'limit_changes', 'limit_uses', 'permits')
"""


async def test_without_limits_nothing_looks_at_them(url: str) -> None:
    """Whether there are any is asked once a claim that finds nothing, and twice one that finds something."""
    async with PostgresStore(url):
        before = dict(execute(url, LOOKS))
    async with PostgresStore(url) as store:
        claims = await claimed(store, "a", "b")
        await store.commit([held(claims[0], 1, step(), Rest(resting=True)), held(claims[1], 1, COMPLETE)])
        await store.commit([held(claims[0], 2, Rest(resting=False)), held(claims[0], 3, COMPLETE)])
        await store.sweep()
        await store.heartbeat("worker")
    looks = dict.fromkeys(before, 0)
    while looks["limits"] < 4:  # statistics arrive a moment after the sessions end
        looks = {name: count - before[name] for name, count in execute(url, LOOKS)}
    # The claim twice, the Commit of a task that works again, the sweep; nothing else.
    assert looks == {"limits": 4, "limit_keys": 0, "limit_changes": 0, "limit_uses": 0, "permits": 0}


async def test_times_are_computed_as_in_the_model(url: str, store: PostgresStore) -> None:
    """The end of a permit is its time, its validity and ``per``, rounded up to a grain."""
    microseconds = (100_001, 999_999, 1_000_001, 59_999_999, 86_400_000_001)
    for per in (SHORTEST, LONGEST, *(timedelta(microseconds=number) for number in microseconds)):
        await store.set_limit(Limit(name="openai", rate=1, per=per))
        [(now, end, validity, grain)] = execute(
            url,
            "SELECT a.now, holdfast.end_of_use(a.now, l.per, l.validity, l.grain), l.validity, l.grain "
            "FROM holdfast.limits l, (SELECT clock_timestamp() AS now) AS a",
        )
        assert timedelta(microseconds=validity) == validity_of(per)
        assert timedelta(microseconds=grain) == grain_of(per)
        assert now + per + validity_of(per) <= end < now + per + validity_of(per) + grain_of(per)
        assert (end - datetime(1970, 1, 1, tzinfo=UTC)) % grain_of(per) == timedelta(0)
