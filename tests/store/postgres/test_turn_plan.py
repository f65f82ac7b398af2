"""Of a fair queue with very many tasks, a claim reads as little as of any other; and a pass reads what has no turn."""

from __future__ import annotations

import pytest

from holdfast import NewTask
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import execute
from tests.store.postgres.test_limit_plan import pages

SIZES = [20_000, pytest.param(100_000, marks=pytest.mark.full)]
LANES = 2_000
"""Of one tenant is every second task, the others share the rest."""

FILL = """
    INSERT INTO holdfast.tasks (id, name, agent_id, state, updated_at, queue, priority, available_at, ready, rank,
                                labels, held, is_counted)
    SELECT 't' || lpad(n::text, 7, '0'), 'job', 'x', 'pending', a.at, 'fair', 0, a.at, 1, a.at,
           jsonb_build_object('tenant', CASE WHEN n % 2 = 0 THEN 'big' ELSE (n % {lanes})::text END), 4, true
    FROM generate_series(0, {tasks} - 1) AS n,
         LATERAL (SELECT now() - interval '1 day' + n * interval '1 ms') AS a (at)
"""
INPUTS = "INSERT INTO holdfast.inputs SELECT id, updated_at, '1', '', '' FROM holdfast.tasks"
IN_SEQUENCE = "SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'tasks' AND schemaname = 'holdfast'"


@pytest.fixture(params=SIZES)
async def filled(request: pytest.FixtureRequest, url: str, store: PostgresStore) -> str:
    await store.set_queue("fair", fair_by="tenant")
    await store.register(NewWorker(id="w", lease=3600))
    # Statistics of empty tables are the worst that a plan can be made with; PL/pgSQL keeps it.
    await store.sweep()
    without_triggers = "SET session_replication_role = replica"
    execute(url, without_triggers, FILL.format(lanes=LANES, tasks=request.param), INPUTS)
    return url


async def test_nothing_reads_more_than_it_needs(filled: str, store: PostgresStore) -> None:
    """All tasks get their turns in one pass; after that a claim, and a pass for one task, touch a few pages."""
    await store.sweep()
    assert execute(filled, "SELECT count(*) FROM holdfast.tasks WHERE held <> 0 OR lane IS NULL") == [(0,)]
    [(longest,)] = execute(filled, "SELECT max(last) FROM holdfast.lanes")
    [(most,)] = execute(filled, "SELECT count(*) - 1 FROM holdfast.tasks WHERE labels ->> 'tenant' = 'big'")
    assert longest == most
    execute(filled, "VACUUM holdfast.tasks")  # as autovacuum does after so many changes
    for number, tenant in enumerate(("new", "newer"), 1):
        await store.submit([NewTask(id=tenant, name="job", queue="fair", labels={"tenant": tenant})])
        found = pages(
            filled,
            "lacks_turns('{fair}')",
            "claim('w', 0, 10, '{fair}', '{job}', false)",
            "first_turn('fair', 'job', 1::smallint, 5)",
            "last_turn('fair', '0 0 big', 5)",
            f"claim('w', {number}, 10, '{{fair,other}}', '{{job,other}}', false, NULL, 2, false)",
        )
        given = execute(filled, "BEGIN", "SELECT holdfast.give_turns('{fair}')", IN_SEQUENCE)
        assert given == [(0,)]
        assert max(found.values()) < 100, found
        [got] = await store.claim(Claim(worker_id="w", number=number, limit=1, queues=("fair",), names=("job",)))
        assert got.task.id in {tenant, "t0000000"}
    claims = pages(filled, "claim('w', 0, 10, '{fair}', '{job}', false)", "give_turns('{fair}')")
    assert max(claims.values()) < 100, claims
