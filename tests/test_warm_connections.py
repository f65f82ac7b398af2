"""What the store of the next test goes on with has nothing of the test before."""

from __future__ import annotations

from holdfast.store.postgres.connections import Connections, PostgresConnection, fetch_on
from tests.postgres_server import PostgresServer
from tests.store.contract.truncating import EmptiedDatabase


async def pid_of(connection: PostgresConnection) -> int:
    [(pid,)] = await fetch_on(connection, "SELECT pg_backend_pid()")
    return int(pid)


async def test_a_connection_goes_on_clean(emptied_database: EmptiedDatabase) -> None:
    connections = Connections(emptied_database.empty(), size=2, prepare=None, retry_for=1)
    first = await connections.connect()
    pid = await pid_of(first)
    await fetch_on(first, "SET work_mem = '1MB'")
    await fetch_on(first, "LISTEN hints")
    await fetch_on(first, "SELECT pg_advisory_lock(1)")
    await fetch_on(first, "CREATE TEMP TABLE leftover (n integer)")
    await fetch_on(first, "NOTIFY hints")
    await first.close()
    assert first.closed
    second = await connections.connect()
    assert await pid_of(second) == pid
    assert await fetch_on(second, "SHOW work_mem") == [("4MB",)]
    assert await fetch_on(second, "SELECT pg_listening_channels()") == []
    assert await fetch_on(second, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'") == []
    assert await fetch_on(second, "SELECT to_regclass('leftover')::text") == [(None,)]
    assert [notice async for notice in second.notifies(timeout=0)] == []
    await fetch_on(second, "BEGIN")
    await second.close()
    third = await connections.connect()
    assert await pid_of(third) != pid, "one that was in a transaction is closed"
    await third.close()


async def test_a_connection_that_was_ended_is_not_used(emptied_database: EmptiedDatabase) -> None:
    connections = Connections(emptied_database.empty(), size=2, prepare=None, retry_for=1)
    kept, ending = await connections.connect(), await connections.connect()
    pid = await pid_of(kept)
    await kept.close()
    await fetch_on(ending, f"SELECT pg_terminate_backend({pid}, 10000)")
    following = await connections.connect()
    assert await pid_of(following) != pid
    await following.close()
    await ending.close()


async def test_a_database_of_its_own_has_new_connections(postgres18: PostgresServer) -> None:
    connections = Connections(postgres18.create_store(), size=1, prepare=None, retry_for=1)
    first = await connections.connect()
    pid = await pid_of(first)
    await first.close()
    second = await connections.connect()
    assert await pid_of(second) != pid
    await second.close()
