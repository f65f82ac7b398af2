"""Settings of a role or a database under which our promises would not hold are undone, or refused."""

import asyncio

import psycopg
import pytest

from holdfast.model.errors import NotAStore, StoreError
from holdfast.store.base import ANYTHING
from holdfast.store.postgres import PostgresStore
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import PATIENCE, begin, claimed, execute, held, step
from tests.store.postgres.test_notices import heard

LOCKED_OUT = "SELECT query_start FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def configure(url: str, setting: str) -> None:
    [(name,)] = execute(url, "SELECT current_database()")
    execute(url, f'ALTER DATABASE "{name}" SET {setting}')


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("default_transaction_isolation = 'repeatable read'", "transaction_isolation", "read committed"),
        ("default_transaction_isolation = 'serializable'", "transaction_isolation", "read committed"),
        ("synchronous_commit = off", "synchronous_commit", "on"),
        ("synchronous_commit = local", "synchronous_commit", "local"),
        ("standard_conforming_strings = off", "standard_conforming_strings", "on"),
        ("client_encoding = 'LATIN1'", "client_encoding", "UTF8"),
    ],
)
async def test_a_session_has_what_the_promises_need(url: str, setting: str, name: str, value: str) -> None:
    configure(url, setting)
    async with PostgresStore(url) as store:
        [(found,)] = await store._backend.open_connections().fetch(f"SELECT current_setting('{name}')")
        assert found == value
        claims = await claimed(store, "a", "b")
        await store.commit([held(claim, 1, step("漢")) for claim in claims])
        assert [stored.output for stored in await store.steps("a")] == [step().step.output]


async def test_a_stricter_level_behind_a_pooler_is_refused(url: str, store: PostgresStore) -> None:
    """Where the session cannot be set, the function itself refuses: a wake-up would be lost for ever."""
    with psycopg.connect(url) as connection:
        connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        with pytest.raises(psycopg.Error, match="read committed"):
            connection.execute("SELECT holdfast.emit('channel', NULL, 'null', 'me')")
    assert await store.events("channel") == []


async def test_a_database_that_cannot_hold_every_character_is_refused(server: PostgresServer) -> None:
    execute(server.url(), "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(NotAStore, match=r"LATIN1.*UTF8"):
            await PostgresStore(server.url("latin")).open()
    finally:
        execute(server.url(), "DROP DATABASE latin")


async def test_a_role_that_owns_only_the_schema_can_set_it_up(bare_url: str) -> None:
    [(name,)] = execute(bare_url, "SELECT current_database()")
    execute(bare_url, "CREATE ROLE landlord LOGIN", "CREATE SCHEMA holdfast AUTHORIZATION landlord")
    execute(bare_url, f'REVOKE ALL ON DATABASE "{name}" FROM PUBLIC', f'GRANT CONNECT ON DATABASE "{name}" TO landlord')
    try:
        with psycopg.connect(bare_url, autocommit=True) as connection:
            connection.execute("SET SESSION AUTHORIZATION landlord")
            connection.execute("CREATE TABLE holdfast.probe (a integer)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("CREATE SCHEMA IF NOT EXISTS holdfast")
        async with PostgresStore(bare_url):  # by the same rule, CREATE SCHEMA is sent only where there is none
            pass
    finally:
        execute(bare_url, "DROP SCHEMA holdfast CASCADE", "DROP OWNED BY landlord", "DROP ROLE landlord")


async def test_a_timeout_of_the_administrators_is_no_refusal(url: str, store: PostgresStore) -> None:
    """What was undone is sent again, not answered as an error: the lock was free a moment later."""
    [claim] = await claimed(store, "a")
    await store.close()
    configure(url, "statement_timeout = '1s'")
    async with PostgresStore(url) as patient:
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SET statement_timeout = 0")
            with other.transaction():
                other.execute("SELECT FROM holdfast.tasks FOR UPDATE")
                waiting = begin(patient.commit([held(claim, 1, step())]))
                await until_sent_twice(url)
        [verdict] = await waiting
        assert verdict.applied


async def until_sent_twice(url: str) -> None:
    """Return once a statement that waited for a lock was cancelled, and another one waits for it."""
    seen: set[object] = set()
    async with asyncio.timeout(PATIENCE):
        while len(seen) < 2:
            seen.update(execute(url, LOCKED_OUT))
            await asyncio.sleep(0.05)


async def test_every_session_may_notify_on_our_channel(url: str, store: PostgresStore) -> None:
    async with store.listen() as listener:
        await heard(listener, ANYTHING)  # the connection was made
        for payload in ("5", "null", '["x", 5]', "nonsense"):
            execute(url, f"NOTIFY holdfast_hints, '{payload}'")
        await heard(listener, ANYTHING)
        async with PostgresStore(url) as other:
            await other.emit("news", 1)
            await heard(listener, "channel:news")


async def test_an_unknown_error_of_the_database_is_still_ours(url: str, store: PostgresStore) -> None:
    execute(url, "DROP FUNCTION holdfast.drain")
    with pytest.raises(StoreError):
        await store.drain("unknown")
