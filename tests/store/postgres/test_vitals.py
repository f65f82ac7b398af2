"""How a store in PostgreSQL says that it is doing, also to a role that may see little."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import conninfo

from holdfast.model.task import NewTask
from holdfast.store.postgres import PostgresStore, grant_work
from holdfast.store.sqlfiles import migrations
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import execute


async def test_it_tells_what_durability_and_speed_rest_on(url: str, store: PostgresStore) -> None:
    vitals = await store.vitals()
    [(version,)] = execute(url, "SELECT current_setting('server_version_num')::int")
    assert vitals.backend == "PostgreSQL"
    assert vitals.version == f"{version // 10_000}.{version % 10_000}"
    assert vitals.schema == migrations("holdfast.store.postgres.migrations")[-1].version
    assert vitals.settings == {
        "fsync": "off",  # that of the tests' own servers
        "full_page_writes": "off",
        "synchronous_commit": "on",
        "max_connections": "200",
        "in_recovery": "off",
    }


async def test_the_size_is_that_of_the_schema_alone(url: str, store: PostgresStore) -> None:
    """With its indexes, and without what others keep in the same database."""
    before = (await store.vitals()).bytes
    execute(
        url, "CREATE TABLE public.large AS SELECT n, repeat('x', 500) AS filler FROM generate_series(1, 10000) AS n"
    )
    assert (await store.vitals()).bytes == before
    [(tables, indexes)] = execute(
        url,
        "SELECT sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint FROM pg_class c "
        "WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r'",
    )
    assert before == tables + indexes
    assert indexes > 0


async def test_rows_are_estimates_that_are_never_negative(url: str, store: PostgresStore) -> None:
    """PostgreSQL itself says -1 of a table that was never vacuumed or analysed."""
    never_looked_at = "SELECT reltuples FROM pg_class WHERE oid = 'holdfast.tasks'::regclass"
    assert execute(url, never_looked_at) == [(-1.0,)]
    vitals = await store.vitals()
    assert not vitals.exact_rows
    assert set(vitals.rows.values()) == {0}
    await store.submit([NewTask(name="job") for _ in range(7)])
    execute(url, "ANALYZE holdfast.tasks")
    assert (await store.vitals()).rows["tasks"] == 7


async def test_before_the_first_analyze_the_statistics_are_asked(url: str, store: PostgresStore) -> None:
    """Otherwise every small store would seem to be empty."""
    await store.submit([NewTask(name="job") for _ in range(7)])
    assert execute(url, "SELECT reltuples FROM pg_class WHERE oid = 'holdfast.tasks'::regclass") == [(-1.0,)]
    await store.close()  # a session hands in its statistics when it ends, if not before
    async with PostgresStore(url) as again:
        for _ in range(600):
            if (await again.vitals()).rows["tasks"] == 7:
                return
            await asyncio.sleep(0.05)
    raise AssertionError("seven tasks were to be seen within half a minute")


async def test_an_old_snapshot_is_seen(url: str, store: PostgresStore) -> None:
    """It keeps VACUUM from removing what was deleted since."""
    assert (await store.vitals()).oldest_snapshot_seconds is None
    with psycopg.connect(url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT pg_sleep(0.1)")
        age = (await store.vitals()).oldest_snapshot_seconds
        assert age is not None
        assert age >= 0.1
    with psycopg.connect(url) as idle:
        idle.execute("SELECT 1")  # in a transaction that has no snapshot, and holds nothing back
        assert (await store.vitals()).oldest_snapshot_seconds is None


async def test_a_snapshot_in_another_database_holds_nothing_back_here(
    server: PostgresServer, store: PostgresStore
) -> None:
    elsewhere = server.create_database()
    try:
        with psycopg.connect(elsewhere) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1")
            assert (await store.vitals()).oldest_snapshot_seconds is None
    finally:
        server.drop_database(elsewhere)


async def test_a_vacuum_holds_nothing_back(url: str, store: PostgresStore) -> None:
    """Long as it may take: it has a snapshot, but keeps no row alive."""
    execute(
        url, "CREATE TABLE public.large AS SELECT n, repeat('x', 500) AS filler FROM generate_series(1, 10000) AS n"
    )
    under_way = (
        "SELECT 1 FROM pg_stat_progress_vacuum p JOIN pg_stat_activity USING (pid) WHERE backend_xmin IS NOT NULL"
    )
    with psycopg.connect(url, autocommit=True) as vacuuming, ThreadPoolExecutor(1) as thread:
        vacuuming.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")  # a minute or more
        running = thread.submit(vacuuming.execute, "VACUUM public.large")
        try:
            while not execute(url, under_way):
                assert not running.done()
            assert (await store.vitals()).oldest_snapshot_seconds is None
            assert execute(url, under_way)
        finally:
            vacuuming.cancel()
            assert isinstance(running.exception(), psycopg.errors.QueryCanceled)


@pytest.fixture
def role(url: str) -> Iterator[str]:
    name = f"looker_{conninfo.conninfo_to_dict(url)['dbname']}"
    execute(url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    yield name
    execute(url, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


async def test_what_a_role_may_not_see_is_left_out(url: str, store: PostgresStore, role: str) -> None:
    await grant_work(url, role)
    as_role = conninfo.make_conninfo(url, user=role, password="secret")  # noqa: S106
    for view in ("pg_stat_activity", "pg_settings"):
        execute(url, f"REVOKE SELECT ON pg_catalog.{view} FROM PUBLIC")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(as_role, f"SELECT FROM pg_catalog.{view}")
    async with PostgresStore(as_role) as poor:
        vitals, of_owner = await poor.vitals(), await store.vitals()
    assert vitals.settings == {}
    assert vitals.oldest_snapshot_seconds is None
    assert (vitals.version, vitals.schema, vitals.bytes) == (of_owner.version, of_owner.schema, of_owner.bytes)
    assert of_owner.settings
