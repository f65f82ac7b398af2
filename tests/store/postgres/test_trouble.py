"""Trouble of the server's own is waited out. Only what is wrong with a Commit's content refuses the Commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest
from psycopg import errors as sqlstates

from holdfast import Context, Holdfast, NewTask, ReadOnlyStore, Retry, StoreUnavailable
from holdfast.model.worker import Claim, NewWorker, Swept, WorkerState
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.errors import is_lost, is_refused, leaves_usable, translate, was_undone
from tests.engine.support import until
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import claimed, execute

TROUBLE = ("53100", "53200", "53300", "57014", "58030", "58P01", "XX000", "XX001", "40P01", "40001", "55P03")
LOST = ("08006", "57P01", "57P02", "57P03")
CONTENT = ("22001", "22P05", "23514", "54000")
NEITHER = ("0A000", "26000", "42P01", "42501", "P0001")
"""Not about the content either: a Commit must not fail because of these, and waiting may not help."""


def test_what_each_error_means() -> None:
    for state in (*TROUBLE, "25006", *LOST, *CONTENT, *NEITHER):
        error = sqlstates.lookup(state)("a message")
        assert is_refused(error) == (state in CONTENT), state
        assert was_undone(error) == (state in (*TROUBLE, "25006")), state
        assert is_lost(error) == (state in LOST), state
        assert isinstance(translate(error, "here"), StoreUnavailable) == (state in (*TROUBLE, *LOST)), state
    read_only = sqlstates.ReadOnlySqlTransaction("a message")
    assert isinstance(translate(read_only, "here"), ReadOnlyStore)
    assert not leaves_usable(read_only), "a new connection may lead to another server"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[psycopg.AsyncConnection[tuple[object, ...]]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield connection


class Shop:
    """A task that pays, and what it did to the world."""

    def __init__(self, url: str, *, retry_for: float) -> None:
        self.url = url
        self.hold = Holdfast(url, retry_for=retry_for)
        self.paid: list[int] = []
        self.refunded: list[int] = []
        self.paying, self.go = asyncio.Event(), asyncio.Event()

        async def pay(amount: int) -> int:
            self.paid.append(amount)
            self.paying.set()
            await self.go.wait()
            return amount

        async def refund(result: int, amount: int) -> None:
            del result
            self.refunded.append(amount)

        @self.hold.task(retry=Retry(max_attempts=1))
        async def buy(ctx: Context) -> int:
            first = await ctx.step("first", pay, 1, effect="once", compensate=refund)
            return first + await ctx.step("second", pay, 2, effect="once", compensate=refund)

        self.buy = buy

    async def check(self) -> None:
        """Nothing was paid twice, undone, in doubt, or counted as an attempt, and nobody is dead."""
        assert (self.paid, self.refunded, await self.hold.doubts()) == ([1, 2], [], [])
        [task] = (await self.hold.store.find()).items
        assert (task.attempts, task.deaths) == (0, 0)
        assert [worker.state for worker in await self.hold.store.workers()] == [WorkerState.LIVE]


async def test_a_task_waits_for_a_server_in_trouble(
    postgres18: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The result of a payment cannot be written, for one reason after the other: the disk is full, and so on."""
    shop = Shop(postgres18.create_database(), retry_for=0)
    async with shop.hold, shop.hold.worker(lease=60), connected(shop.url) as admin:
        handle = await shop.hold.submit(shop.buy)
        await shop.paying.wait()
        for state in ("53100", "58030", "XX001", "25006"):
            await admin.execute(
                "CREATE OR REPLACE FUNCTION public.trouble() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN PERFORM nextval('public.tries'); RAISE EXCEPTION 'trouble' USING ERRCODE = '{state}'; END $$"
            )
            await admin.execute("CREATE SEQUENCE IF NOT EXISTS public.tries")
            with suppress(psycopg.errors.DuplicateObject):
                await admin.execute(
                    "CREATE TRIGGER trouble BEFORE INSERT OR UPDATE ON holdfast.effects"
                    " EXECUTE FUNCTION public.trouble()"
                )
            before = await tries(admin)
            shop.go.set()

            async def was_tried(before: int = before) -> bool:
                return await tries(admin) > before + 2

            await until(was_tried)
        await until(lambda: "the store cannot be used now" in caplog.text)
        await admin.execute("DROP TRIGGER trouble ON holdfast.effects")
        assert await handle.result(timeout=60) == 3
        await until(lambda: "the store can be used again" in caplog.text)
        await shop.check()
    assert [record.message for record in caplog.records if record.levelno > logging.WARNING] == []


async def tries(admin: psycopg.AsyncConnection[tuple[object, ...]]) -> int:
    row = await (await admin.execute("SELECT last_value FROM public.tries")).fetchone()
    assert row is not None
    return int(str(row[0]))


@pytest.mark.parametrize("retry_for", [0.0, 10.0])
async def test_read_only_seconds_longer_than_a_lease_are_waited_out(
    postgres18: PostgresServer, caplog: pytest.LogCaptureFixture, retry_for: float
) -> None:
    """As in a planned fail-over. Connections that were opened meanwhile stay read-only, and are not used again.

    A short one is waited out by the store, a long one by the engine.
    """
    shop = Shop(postgres18.create_database(), retry_for=retry_for)
    lease = 2.0
    async with shop.hold, shop.hold.worker(lease=lease), connected(shop.url) as admin:
        handle = await shop.hold.submit(shop.buy)
        await shop.paying.wait()
        await read_only(admin, "on")
        shop.go.set()
        await until(lambda: "the store cannot be used now" in caplog.text)

        async def is_over() -> bool:
            found = await admin.execute("SELECT clock_timestamp() > expires_at + interval '1 s' FROM holdfast.workers")
            return await found.fetchone() == (True,)

        await until(is_over)
        await read_only(admin, "off")
        assert await handle.result(timeout=60) == 3
        await until(lambda: "the store can be used again" in caplog.text)
        await shop.check()
    assert sum("the store can" in record.message for record in caplog.records) == 2
    assert not retry_for or "can only be read" in caplog.text


@pytest.mark.parametrize("retry_for", [0.0, 60.0])
async def test_nobody_is_declared_dead_right_after_an_outage(postgres18: PostgresServer, retry_for: float) -> None:
    """Nobody could renew a lease meanwhile. Also if the sweep itself was sent while nothing could be written."""
    url = postgres18.create_database()
    async with PostgresStore(url, retry_for=retry_for) as store, connected(url) as admin:
        await store.submit([NewTask(id="held", name="work")])
        await store.register(NewWorker(id="w", lease=1))
        assert await store.claim(Claim(worker_id="w", number=1, limit=1, names=("work",)))
        await read_only(admin, "on")

        async def sweep() -> Swept:
            while True:
                with suppress(ReadOnlyStore, StoreUnavailable):
                    return await store.sweep()
                await asyncio.sleep(0.02)

        sweeping = asyncio.create_task(sweep())
        await admin.execute("SELECT pg_sleep(3)")
        await read_only(admin, "off")
        assert (await sweeping).recovered == ()

        async def is_taken_back() -> bool:
            return (await store.sweep()).recovered == ("held",)

        await until(is_taken_back)


async def read_only(admin: psycopg.AsyncConnection[tuple[object, ...]], value: str) -> None:
    """Change it for new sessions, and end the ones that are open if it is switched on."""
    [name] = await (await admin.execute("SELECT current_database()")).fetchone() or ("",)
    await admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}'.encode())
    if value == "on":
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_a_new_process_declares_nobody_dead_before_a_lease_has_passed(url: str) -> None:
    """There may have been an outage until just now, in which nobody could renew a lease; it cannot know."""
    async with PostgresStore(url) as first:
        await claimed(first, "held", lease=5)
        age = "extract(epoch FROM now() - pg_postmaster_start_time())"
        execute(url, f"SELECT pg_sleep(greatest(0, 5.5 - {age}))")  # right after its start the server itself forbids it
        execute(url, "UPDATE holdfast.workers SET seen_at = seen_at - interval '1 h', expires_at = now()")
        async with PostgresStore(url) as second:
            assert (await second.sweep()).recovered == ()
            second._backend.open_connections()._last_outage -= 6
            assert (await second.sweep()).recovered == ("held",)
