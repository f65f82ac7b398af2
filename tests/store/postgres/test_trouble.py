"""Trouble of the server's own is waited out. Only what is wrong with a Commit's content refuses the Commit."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest
from psycopg import errors as sqlstates

from holdfast import Context, Holdfast, NewTask, ReadOnlyStore, Retry, StoreUnavailable, TaskState
from holdfast.model.worker import Claim, NewWorker, Swept, WorkerState
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.errors import is_lost, is_refused, leaves_usable, translate, was_undone
from tests.engine.support import reaches, until
from tests.postgres_server import PostgresServer, start_postgres
from tests.store.postgres.support import claimed, execute

TROUBLE = ("53100", "53200", "53300", "57014", "58030", "58P01", "XX000", "XX001", "XX002", "40P01", "40001", "55P03")
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
        assert ("no waiting mends" in str(translate(error, "here"))) == (state in {"XX001", "XX002"}), state
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
        """Nothing was paid twice, undone, in doubt, or counted as an attempt, and no worker is dead."""
        assert (self.paid, self.refunded, await self.hold.doubts()) == ([1, 2], [], [])
        [task] = (await self.hold.store.find()).items
        assert (task.attempts, task.deaths) == (0, 0)
        assert [worker.state for worker in await self.hold.store.workers()] == [WorkerState.LIVE]


async def test_a_task_waits_for_a_server_in_trouble(
    postgres18: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The result of a payment cannot be written, for one reason after the other: the disk is full, and so on."""
    shop = Shop(postgres18.create_store(), retry_for=0)
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
    # Damage may concern one row only, so that it is logged as the task's.
    [line] = [record.message for record in caplog.records if record.levelno > logging.WARNING]
    assert f"task {handle.id} cannot be written" in line
    assert "no waiting mends" in line


async def test_a_row_that_cannot_be_written_holds_up_no_other_task(
    postgres18: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its Commits are tried again alone, until a person has repaired the row; nothing fails, and nothing is undone."""
    for state in ("XX001", "XX000", "P0001"):
        caplog.clear()
        url = postgres18.create_store()
        hold = Holdfast(url, retry_for=0)
        go = asyncio.Event()

        @hold.task
        async def work(ctx: Context, name: str, go: asyncio.Event = go) -> str:
            await ctx.step("wait", go.wait)
            await ctx.step("write", lambda: name)
            await ctx.step("more", lambda: name)
            return name

        async with hold, hold.worker(concurrency=8), connected(url) as admin:
            damaged, *others = [await hold.submit(work, name) for name in ("damaged", "a", "b", "c")]
            await admin.execute(
                "CREATE FUNCTION public.trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                f"IF NEW.task_id = '{damaged.id}' AND NEW.key = 'write' THEN "
                f"RAISE EXCEPTION 'trouble' USING ERRCODE = '{state}'; END IF; RETURN NEW; END $$".encode()
            )
            await admin.execute(
                "CREATE TRIGGER trouble BEFORE INSERT OR UPDATE ON holdfast.steps"
                " FOR EACH ROW EXECUTE FUNCTION public.trouble()"
            )
            go.set()
            assert [await other.result(timeout=60) for other in others] == ["a", "b", "c"]
            await until(lambda: f"task {damaged.id} cannot be written" in caplog.text)  # noqa: B023 - it is awaited here
            late = await hold.submit(work, "late")
            assert await late.result(timeout=60) == "late"
            task = await damaged.task()
            assert (task.state, task.attempts) == (TaskState.RUNNING, 0), state
            await admin.execute("DROP TRIGGER trouble ON holdfast.steps")
            assert await damaged.result(timeout=60) == "damaged"
            assert f"task {damaged.id} was written" in caplog.text


async def test_a_damaged_row_fails_its_task_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of the large values are lost: neither the input of one task nor the journal of another can be read."""
    monkeypatch.setattr("holdfast.engine.worker.host.LOOK_FOR_STRAYS_EVERY", 1)
    with start_postgres(18) as server:
        url = server.create_store()
        hold = Holdfast(url)

        @hold.task
        async def work(ctx: Context, name: str) -> int:
            await ctx.step("large", lambda: "".join(random.Random(1).choices("abcdefgh", k=300_000)))
            if name == "waits":
                await ctx.wait_event("go")
            return len(name)

        large = "".join(random.Random(2).choices("abcdefgh", k=300_000))
        async with hold:
            async with hold.worker():
                waits = await hold.submit(work, "waits")
                await reaches(waits, TaskState.WAITING)
            new = await hold.submit(work, large)
        lose_large_values(server, url, "holdfast.inputs", "holdfast.steps")
        async with hold, hold.worker(lease=2.0):
            neighbour = await hold.submit(work, "small")
            await hold.emit("go")
            assert await neighbour.result(timeout=60) == 5
            await reaches(hold.handle(waits.id), TaskState.FAILED)
            async with connected(url) as admin:

                async def is_failed() -> bool:  # its input cannot be read: neither can the task as a whole
                    found = await admin.execute("SELECT state FROM holdfast.tasks WHERE id = %s", (new.id,))
                    return await found.fetchone() == ("failed",)

                await until(is_failed)
            for damaged in (waits, new):
                assert f"task {damaged.id}: what is stored of it cannot be read" in caplog.text


def lose_large_values(server: PostgresServer, url: str, *tables: str) -> None:
    """Empty the files of the large values of these tables, as a broken disk may."""
    with psycopg.connect(url) as connection:
        files = [
            row[0]
            for table in tables
            for row in connection.execute(
                "SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = %s::regclass", (table,)
            )
        ]
        connection.execute("CHECKPOINT")
    server.stop()
    for file in files:
        path = server.data / str(file)
        path.write_bytes(bytes(path.stat().st_size))
    server.start()


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
    shop = Shop(postgres18.create_store(), retry_for=retry_for)
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
async def test_no_worker_is_declared_dead_right_after_an_outage(postgres18: PostgresServer, retry_for: float) -> None:
    """No worker could renew a lease meanwhile. Also if the sweep itself was sent while nothing could be written."""
    url = postgres18.create_store()
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


async def test_a_new_process_declares_no_worker_dead_before_a_lease_has_passed(url: str) -> None:
    """There may have been an outage until just now, in which no worker could renew a lease; it cannot know."""
    async with PostgresStore(url) as first:
        await claimed(first, "held", lease=5)
        age = "extract(epoch FROM now() - pg_postmaster_start_time())"
        execute(url, f"SELECT pg_sleep(greatest(0, 5.5 - {age}))")  # right after its start the server itself forbids it
        execute(url, "UPDATE holdfast.workers SET seen_at = seen_at - interval '1 h', expires_at = now()")
        async with PostgresStore(url) as second:
            assert (await second.sweep()).recovered == ()
            second._backend.open_connections()._last_outage -= 6
            assert (await second.sweep()).recovered == ("held",)
