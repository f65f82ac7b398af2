"""Among very many schedules, the next tick and what is due are read by index."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import execute

MANY = 20_000

FILL = f"""
    INSERT INTO holdfast.schedules (
        name, spec, anchored_at, tick_at, due_at, waits_for_last, declared, created_at, revision)
    SELECT 's' || lpad(n::text, 6, '0'), '1', now(), now(), '2000-01-01 00:00Z'::timestamptz + n * interval '1 second',
           n % 2 = 0, false, now(), 1
    FROM generate_series(1, {MANY}) AS n
"""

READ = """
    SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables
    WHERE schemaname = 'holdfast' AND relname = 'schedules'
"""


async def test_schedules_are_read_by_index(url: str, store: PostgresStore) -> None:
    execute(url, FILL, "VACUUM ANALYZE holdfast.schedules")
    assert (await store.sweep()).next_tick == datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert [one.name for one in await store.due_schedules(limit=3)] == ["s000001", "s000002", "s000003"]
    [(in_sequence, by_index)] = execute(url, "BEGIN", "SELECT holdfast.next_tick()", READ)
    assert (in_sequence, by_index or 0) <= (0, 5)
