"""Closing, however it is disturbed: nothing of ours is left in this process, and nothing on the server."""

import asyncio
import logging
from collections.abc import AsyncIterator

import psycopg
import pytest

from holdfast.model.errors import StoreClosed
from holdfast.model.task import NewTask
from holdfast.store.base import ANYTHING
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.notices import Notices
from tests.engine.support import until
from tests.store.postgres.support import PATIENCE, execute

SESSIONS = "SELECT wait_event FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def ours() -> set[str]:
    """What goes on in the background, by name."""
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("holdfast-")}


class FakeConnection:
    """Listens for ever; the first ``execute`` of a slow one answers a cancel with an error, as the driver may."""

    def __init__(self, *, slow: bool = False) -> None:
        self.is_slow = slow
        self.asked = asyncio.Event()
        self.is_closed = False

    async def execute(self, query: object) -> None:
        del query
        self.asked.set()
        if self.is_slow:
            self.is_slow = False
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise psycopg.OperationalError("the connection was lost") from None

    async def notifies(self) -> AsyncIterator[object]:
        await asyncio.Event().wait()
        yield self

    async def close(self) -> None:
        self.is_closed = True


def notices_on(connection: FakeConnection) -> Notices:
    async def connect() -> FakeConnection:
        return connection

    async def send(channel: str, payload: str) -> None:
        raise RuntimeError(f"a defect: {channel} {payload}")

    return Notices("hints", send=send, connect=connect)  # type: ignore[arg-type]


async def test_a_cancelled_close_closes_everything(url: str) -> None:
    store = await PostgresStore(url).open()
    async with store.listen() as listener:
        assert ANYTHING in await listener.wait(PATIENCE)  # its connection was made
    await store.submit([NewTask(name="work")])
    notices = store._backend.notices
    assert notices is not None

    async def send_slowly(channel: str, payload: str) -> None:
        await store._backend.open_connections().fetch("SELECT pg_sleep(3600), $1, $2", (channel, payload))

    notices._send = send_slowly
    store._backend.publish({"task:a"})
    await until(lambda: ("PgSleep",) in execute(url, SESSIONS))
    assert ours() == {"holdfast-listen", "holdfast-notify"}
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)  # it waits for the last hints
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert ours() == set()
    with pytest.raises(StoreClosed):
        await store.now()
    await until(lambda: execute(url, SESSIONS) == [])


async def test_hints_that_come_while_it_closes_start_nothing(url: str) -> None:
    store = await PostgresStore(url).open()
    async with store.listen() as listener:
        assert ANYTHING in await listener.wait(PATIENCE)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)  # it waits for the end of the listening
    assert not closing.done()
    store._backend.publish({"task:a"})
    await closing
    assert ours() == set()
    await until(lambda: execute(url, SESSIONS) == [])


async def test_no_listener_starts_while_it_closes(url: str) -> None:
    store = await PostgresStore(url).open()
    store._backend.publish({"task:a"})
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)  # it waits for the last hints
    assert not closing.done()
    with pytest.raises(StoreClosed):
        async with store.listen():
            pass
    await closing
    assert ours() == set()


async def test_what_the_sending_died_of_is_said_and_does_not_spoil_the_close(caplog: pytest.LogCaptureFixture) -> None:
    connection = FakeConnection()
    notices = notices_on(connection)
    async with notices.listening():
        notices.publish({"task:a"})
        assert notices._sending is not None
        await asyncio.wait([notices._sending])
    await notices.close()
    assert connection.is_closed
    assert ours() == set()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "holdfast-notify" in record.message
    assert record.exc_info is not None


async def test_a_driver_error_on_cancel_does_not_prevent_closing() -> None:
    connection = FakeConnection(slow=True)
    notices = notices_on(connection)

    async def listen() -> None:
        async with notices.listening():
            pass

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(PATIENCE):
        await connection.asked.wait()
        await notices.close()
    assert connection.is_closed
    assert ours() == set()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
