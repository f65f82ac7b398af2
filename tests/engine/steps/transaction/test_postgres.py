"""PostgreSQL: connections lost around the COMMIT, poolers, and what a session is set to."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import psycopg
import pytest

from holdfast import (
    Context,
    DeadlineExceeded,
    Holdfast,
    InvalidValue,
    NewTask,
    Retry,
    StoreError,
    StoreUnavailable,
)
from holdfast.model.commit import Commit, Refusal
from holdfast.model.worker import NewWorker
from holdfast.store.postgres import PostgresStore, user_transaction
from holdfast.store.postgres.connections import PostgresConnection, Row
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.statements import refuse_control
from holdfast.store.transaction import StoreTransaction
from tests.conftest import PgBouncerFactory
from tests.engine.steps.transaction.support import (
    A_WHILE,
    LONG,
    Bookings,
    ask,
    book_with,
    claim,
    commit,
    keys_of,
    seats,
)
from tests.engine.support import ended, until
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import execute

BOOKINGS = Bookings("postgresql:")
Finish = Callable[[Database, PostgresConnection], Coroutine[Any, Any, psycopg.Error | None]]


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_url) as store:
        await BOOKINGS.create(store)
        yield store


def backend_of(connection: PostgresConnection) -> int:
    return connection.info.backend_pid


def terminate(url: str, pid: int) -> None:
    [(done,)] = execute(url, f"SELECT pg_terminate_backend({pid}, 10000)")
    assert done


def cut(connection: PostgresConnection) -> None:
    """Cut the connection, as a broken network does: no side is notified, and the server goes on with what it has."""
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


class Fault:
    """Does something at the COMMIT of the next transaction, once."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fired = 0
        self._db = store._backend
        self._finish: Finish = user_transaction._finish
        self.act: Callable[[PostgresConnection], Coroutine[Any, Any, psycopg.Error | None]] | None = None
        monkeypatch.setattr(user_transaction, "_finish", self._fire)

    async def _fire(self, db: Database, connection: PostgresConnection) -> psycopg.Error | None:
        if self.act is None or self.fired:
            return await self._finish(db, connection)
        self.fired += 1
        return await self.act(connection)

    async def commit(self, connection: PostgresConnection) -> psycopg.Error | None:
        return await self._finish(self._db, connection)


@pytest.fixture
def fault(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Fault:
    return Fault(store, monkeypatch)


# The connection is lost around the COMMIT


async def test_the_answer_to_the_commit_is_lost(store: PostgresStore, fault: Fault) -> None:
    """It was committed: that is found out, and the answer is as usual."""

    async def commit_and_lose(connection: PostgresConnection) -> psycopg.Error | None:
        assert await fault.commit(connection) is None
        cut(connection)
        return psycopg.OperationalError("the connection is lost")

    fault.act = commit_and_lose
    claimed = await claim(store)
    value, verdict = await book_with(store, BOOKINGS, "1A", commit(claimed, 1))
    assert (fault.fired, value, verdict.applied, verdict.sequence) == (1, "1A", True, 1)
    assert (await seats(store), await keys_of(store)) == (["1A"], ["step"])


async def test_the_commit_never_arrives(store: PostgresStore, fault: Fault, postgres_url: str) -> None:
    """It was not committed: StoreUnavailable then means that nothing was written, and the same can be done again."""

    async def lose_and_commit(connection: PostgresConnection) -> psycopg.Error | None:
        terminate(postgres_url, backend_of(connection))
        return await fault.commit(connection)

    fault.act = lose_and_commit
    claimed = await claim(store)
    with pytest.raises(StoreUnavailable, match="nothing of it was written"):
        await book_with(store, BOOKINGS, "1A", commit(claimed, 1))
    assert (fault.fired, await seats(store), await keys_of(store)) == (1, [], [])
    _, verdict = await book_with(store, BOOKINGS, "1A", commit(claimed, 1))
    assert verdict.applied
    assert await seats(store) == ["1A"]


@pytest.mark.parametrize("is_fine", [True, False])
async def test_the_commit_is_still_under_way(
    store: PostgresStore, fault: Fault, postgres_url: str, is_fine: bool
) -> None:
    """The line is cut while the server commits, which takes it a while. Without the lock the answer would be that
    nothing happened, and the work would be done again."""
    end = "RETURN NULL" if is_fine else "RAISE EXCEPTION 'no'"
    execute(
        postgres_url,
        f"CREATE OR REPLACE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM pg_advisory_xact_lock(42); {end}; END $$",
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON bookings DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION dawdle()",
    )
    claimed = await claim(store)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(42)")

        def waiting() -> int:
            [(number,)] = other.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return int(number)

        async def cut_meanwhile(connection: PostgresConnection) -> psycopg.Error | None:
            committing = asyncio.create_task(fault.commit(connection))
            await until(lambda: waiting() == 1)  # the server, for the lock: it is in the middle of its COMMIT
            cut(connection)
            return await committing

        fault.act = cut_meanwhile
        booking = asyncio.create_task(book_with(store, BOOKINGS, "1A", commit(claimed, 1)))
        await until(lambda: waiting() == 2)  # and so does the question what became of it
        assert not booking.done()
        other.execute("SELECT pg_advisory_unlock(42)")
        if is_fine:
            _, verdict = await booking
            assert verdict.applied
        else:
            with pytest.raises(StoreUnavailable, match="nothing of it was written"):
                await booking
    assert fault.fired == 1
    assert await seats(store) == (["1A"] if is_fine else [])
    assert await keys_of(store) == (["step"] if is_fine else [])


async def test_without_a_commit_the_start_is_unknown(store: PostgresStore, fault: Fault) -> None:
    async def commit_and_lose(connection: PostgresConnection) -> psycopg.Error | None:
        assert await fault.commit(connection) is None
        return psycopg.OperationalError("the connection is lost")

    fault.act = commit_and_lose
    with pytest.raises(StoreUnavailable, match="may have happened"):
        await ask(store, BOOKINGS.insert, "1A")
    assert fault.fired == 1


async def test_it_asks_for_as_long_as_it_takes(
    store: PostgresStore, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither answer may be given before the database said which: it is away for longer than any verb waits."""
    monkeypatch.setattr(user_transaction, "_LONGEST_PAUSE", 0.01)
    fetch, asked = store._backend.fetch, 0

    async def away(query: str, *values: object, repeatable: bool = True) -> list[Row]:
        nonlocal asked
        if query == "standing":
            asked += 1
            if asked < 5:
                raise StoreUnavailable("away")
        return await fetch(query, *values, repeatable=repeatable)

    async def commit_and_lose(connection: PostgresConnection) -> psycopg.Error | None:
        assert await fault.commit(connection) is None
        monkeypatch.setattr(store._backend, "fetch", away)
        return psycopg.OperationalError("the connection is lost")

    fault.act = commit_and_lose
    claimed = await claim(store)
    _, verdict = await book_with(store, BOOKINGS, "1A", commit(claimed, 1))
    assert (asked, verdict.applied) == (5, True)


async def test_a_task_that_went_to_another_worker_meanwhile(store: PostgresStore, fault: Fault) -> None:
    async def commit_and_lose(connection: PostgresConnection) -> psycopg.Error | None:
        assert await fault.commit(connection) is None
        await store.retire("worker")
        return psycopg.OperationalError("the connection is lost")

    fault.act = commit_and_lose
    claimed = await claim(store)
    _, verdict = await book_with(store, BOOKINGS, "1A", commit(claimed, 1))
    assert (verdict.refusal, verdict.fence) == (Refusal.SUPERSEDED, claimed.fence + 1)
    assert await keys_of(store) == ["step"]  # the worker that has the task now finds it


async def test_a_task_that_is_gone_meanwhile(store: PostgresStore, fault: Fault, postgres_url: str) -> None:
    async def commit_and_lose(connection: PostgresConnection) -> psycopg.Error | None:
        assert await fault.commit(connection) is None
        execute(postgres_url, "SET session_replication_role = replica", "DELETE FROM holdfast.tasks")
        return psycopg.OperationalError("the connection is lost")

    fault.act = commit_and_lose
    claimed = await claim(store)
    _, verdict = await book_with(store, BOOKINGS, "1A", commit(claimed, 1))
    assert verdict.refusal is Refusal.NOT_FOUND


@pytest.mark.parametrize("is_written", [True, False])
async def test_the_engine_does_it_exactly_once_however_the_connection_is_lost(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    calls = 0

    async def book(tx: StoreTransaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        return await BOOKINGS.book(tx, seat)

    async with Holdfast(postgres_url) as hold:
        assert isinstance(hold.store, PostgresStore)
        await BOOKINGS.create(hold.store)
        fault = Fault(hold.store, monkeypatch)

        async def lose(connection: PostgresConnection) -> psycopg.Error | None:
            if is_written:
                assert await fault.commit(connection) is None
            cut(connection)
            return await fault.commit(connection)

        fault.act = lose

        @hold.task
        async def travel(ctx: Context) -> list[str]:
            first = await ctx.transaction("book", book, "1A")
            return [first, await ctx.transaction("book", book, "2B")]

        handle = await hold.submit(travel)
        async with hold.worker():
            assert await ended(handle) == ["1A", "2B"]
        assert fault.fired == 1
        assert calls == (2 if is_written else 3)
        assert await seats(hold.store) == ["1A", "2B"]


# The connection is lost before


async def test_a_connection_lost_in_the_middle_wrote_nothing(store: PostgresStore, postgres_url: str) -> None:
    claimed = await claim(store)
    lost = 0

    async def work(tx: StoreTransaction) -> tuple[None, Commit]:
        nonlocal lost
        [(pid,)] = await tx.execute("SELECT pg_backend_pid()")
        await BOOKINGS.book(tx, "1A")
        terminate(postgres_url, pid)
        lost += 1
        await BOOKINGS.book(tx, "2B")
        return None, commit(claimed, 1)

    with pytest.raises(StoreUnavailable, match="nothing of it was written"):
        await store.transact(work, timeout=LONG)
    assert lost == 1
    assert (await seats(store), await keys_of(store)) == ([], [])


async def test_a_connection_lost_under_a_function_that_does_not_mind(store: PostgresStore, postgres_url: str) -> None:
    async def work(tx: StoreTransaction) -> tuple[None, None]:
        [(pid,)] = await tx.execute("SELECT pg_backend_pid()")
        terminate(postgres_url, pid)
        with pytest.raises(StoreUnavailable):
            await BOOKINGS.book(tx, "1A")
        return None, None

    with pytest.raises(StoreUnavailable):
        await store.transact(work, timeout=LONG)


async def test_a_connection_that_died_while_idle_is_replaced(store: PostgresStore, postgres_url: str) -> None:
    [(pid,)] = await ask(store, "SELECT pg_backend_pid()")
    terminate(postgres_url, pid)
    [(other,)] = await ask(store, "SELECT pg_backend_pid()")
    assert other != pid


async def test_a_connection_is_used_again_after_whatever_went_wrong(store: PostgresStore) -> None:
    async def pid_of(then: Callable[[StoreTransaction], Coroutine[Any, Any, None]], *, timeout: float = LONG) -> int:
        found: list[int] = []

        async def work(tx: StoreTransaction) -> tuple[None, None]:
            found.append((await tx.execute("SELECT pg_backend_pid()"))[0][0])
            await then(tx)
            return None, None

        with pytest.raises((LookupError, StoreError, DeadlineExceeded)):
            await store.transact(work, timeout=timeout)
        return found[0]

    async def fail(tx: StoreTransaction) -> None:
        del tx
        raise LookupError

    async def divide(tx: StoreTransaction) -> None:
        await tx.execute("SELECT 1 / 0")

    async def dawdle(tx: StoreTransaction) -> None:
        await tx.execute("SELECT pg_sleep(60)")

    pids = [await pid_of(fail), await pid_of(divide), await pid_of(dawdle, timeout=A_WHILE), await pid_of(fail)]
    assert len(set(pids)) == 1


async def test_two_that_lock_each_other_out_both_succeed_in_the_end(postgres_url: str) -> None:
    """PostgreSQL gives one of them up: nothing of it was written, so it is done again."""
    calls = 0
    both_inside = asyncio.Barrier(2)

    async with Holdfast(postgres_url) as hold:
        await ask(hold.store, "CREATE TABLE planes (name TEXT PRIMARY KEY, seats INTEGER)")
        await ask(hold.store, "INSERT INTO planes VALUES ('a', 0), ('b', 0)")

        async def move(tx: StoreTransaction, first: str, second: str) -> None:
            nonlocal calls
            calls += 1
            await tx.execute("UPDATE planes SET seats = seats + 1 WHERE name = %s", first)
            if calls <= 2:
                await both_inside.wait()
            await tx.execute("UPDATE planes SET seats = seats + 1 WHERE name = %s", second)

        @hold.task(retry=Retry(max_attempts=1))
        async def travel(ctx: Context, first: str, second: str) -> None:
            await ctx.transaction("move", move, first, second)

        handles = [await hold.submit(travel, "a", "b"), await hold.submit(travel, "b", "a")]
        async with hold.worker():
            for handle in handles:
                await ended(handle)
        assert calls == 3
        assert await ask(hold.store, "SELECT * FROM planes ORDER BY name") == [("a", 2), ("b", 2)]


async def test_a_cancel_counts_though_the_database_has_something_else_to_say(store: PostgresStore) -> None:
    """psycopg would raise the error, and the cancelled caller would go on."""
    stubborn = "DO $$ BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN RAISE 'something else'; END $$"
    for asking in (store._backend.open_connections().fetch(stubborn), ask(store, stubborn)):
        asked = asyncio.create_task(asking)
        await asyncio.sleep(0.2)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked


# Sessions


async def test_the_search_path_is_the_users_own(postgres18: PostgresServer) -> None:
    url = postgres18.create_store()
    [(name,)] = execute(url, "SELECT current_database()")
    execute(url, "CREATE SCHEMA mine", f'ALTER DATABASE "{name}" SET search_path = mine')
    async with PostgresStore(url) as store:
        await ask(store, "CREATE TABLE tasks (mine TEXT)")  # a name that Holdfast uses too
        claimed = await claim(store)

        async def work(tx: StoreTransaction) -> tuple[None, Commit]:
            await tx.execute("INSERT INTO tasks VALUES (%s)", "x")
            return None, commit(claimed, 1)

        _, verdict = await store.transact(work, timeout=LONG)
        assert verdict is not None
        assert verdict.applied
        assert await ask(store, "SELECT * FROM mine.tasks") == [("x",)]
    postgres18.drop_database(url)


async def test_the_server_ends_what_a_frozen_process_left_open(store: PostgresStore) -> None:
    frozen = 0

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        nonlocal frozen
        assert await tx.execute("SHOW idle_in_transaction_session_timeout") == [("4s",)]
        assert await tx.execute("SHOW transaction_isolation") == [("read committed",)]
        await BOOKINGS.book(tx, "1A")
        time.sleep(5)  # noqa: ASYNC251 - the loop stands still, and with it the client's own timeout
        frozen += 1
        await BOOKINGS.book(tx, "2B")
        return None, None

    with pytest.raises(DeadlineExceeded, match="rolled back"):
        await store.transact(work, timeout=A_WHILE)
    assert frozen == 1
    assert await seats(store) == []
    assert await ask(store, "SHOW idle_in_transaction_session_timeout") == [("61s",)]


async def test_open_transactions_do_not_block_workers(postgres_url: str) -> None:
    """They have connections of their own: a heartbeat that had to wait for one would cost a lease."""
    async with PostgresStore(postgres_url, pool_size=2) as store:
        await BOOKINGS.create(store)
        go_on = asyncio.Event()

        async def work(tx: StoreTransaction) -> tuple[None, None]:
            await tx.execute("SELECT 1")
            await go_on.wait()
            return None, None

        opened = [asyncio.create_task(store.transact(work, timeout=LONG)) for _ in range(5)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(LONG):
            await store.register(NewWorker(id="worker"))
            await asyncio.gather(*(store.heartbeat("worker") for _ in range(5)))
            await store.submit([NewTask(name="job")])
        assert not any(one.done() for one in opened)
        go_on.set()
        await asyncio.gather(*opened)


async def test_behind_a_pooler_in_transaction_mode(
    postgres_url: str, postgres18: PostgresServer, pgbouncer: PgBouncerFactory
) -> None:
    pooler = pgbouncer(postgres18, pool_size=3)
    hold = Holdfast(pooler.pooled(postgres_url), prepare=False, listen_url=postgres_url)
    async with hold:
        await BOOKINGS.create(hold.store)

        async def book(tx: StoreTransaction, seat: str) -> str:
            await tx.execute("SELECT 1")
            await asyncio.sleep(0.001)
            return await BOOKINGS.book(tx, seat)

        @hold.task
        async def travel(ctx: Context, number: int) -> list[str]:
            return [await ctx.transaction("book", book, f"{number}{letter}") for letter in "ABC"]

        handles = [await hold.submit(travel, number) for number in range(10)]
        async with hold.worker():
            for handle in handles:
                await ended(handle)
        assert await seats(hold.store) == sorted(f"{number}{letter}" for number in range(10) for letter in "ABC")
        assert await ask(hold.store, "SHOW idle_in_transaction_session_timeout") == [("61s",)]
    with psycopg.connect(pooler.pooled(postgres_url), autocommit=True) as stranger:
        assert stranger.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)


# Statements


async def test_a_percent_sign_is_itself_where_there_are_no_parameters(store: PostgresStore) -> None:
    await ask(store, BOOKINGS.insert, "1A")
    assert await ask(store, "SELECT seat FROM bookings WHERE seat LIKE '1%'") == [("1A",)]
    assert await ask(store, "SELECT seat FROM bookings WHERE seat LIKE %s", "1%") == [("1A",)]


async def test_rows_come_as_psycopg_gives_them(store: PostgresStore) -> None:
    """Also of types it has no idea of: as text, not as the bytes that travel on Holdfast's own connections."""
    for parameters in ((), (1,)):
        sql = "SELECT 'fat cat'::tsvector, 1.5::numeric" + (", %s" if parameters else "")
        [row] = await ask(store, sql, *parameters)
        assert row[0] == "'cat' 'fat'"
        assert str(row[1]) == "1.5"


async def test_a_statement_that_ends_the_transaction_after_all(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should one ever slip through: Holdfast's own part is not written behind it."""
    monkeypatch.setattr(user_transaction, "refuse_control", lambda _sql: None)
    claimed = await claim(store)

    async def work(tx: StoreTransaction) -> tuple[None, Commit]:
        await tx.execute("COMMIT")
        return None, commit(claimed, 1)

    with pytest.raises(StoreError, match="ended the transaction"):
        await store.transact(work, timeout=LONG)
    assert await keys_of(store) == []


async def test_a_level_that_holdfast_cannot_work_at(store: PostgresStore) -> None:
    claimed = await claim(store)

    async def work(tx: StoreTransaction) -> tuple[None, Commit]:
        await tx.execute("SET LOCAL transaction_isolation = 'serializable'")
        await BOOKINGS.book(tx, "1A")
        return None, commit(claimed, 1)

    with pytest.raises(StoreError, match="read committed"):
        await store.transact(work, timeout=LONG)
    assert (await seats(store), await keys_of(store)) == ([], [])


REFUSED = [
    *(
        "BEGIN",
        "begin;",
        "START TRANSACTION",
        "COMMIT",
        "COMMIT AND CHAIN",
        "END",
        "ROLLBACK",
        "rollback to x",
        "ABORT",
    ),
    *("SAVEPOINT x", "RELEASE x", "PREPARE TRANSACTION 'x'", "COMMIT PREPARED 'x'", ";;COMMIT", "\n\t COMMIT"),
    *("-- a\n-- b\nCOMMIT", "/* a */COMMIT", "/* /* */ */ COMMIT", "/**/ -- x\n /* y */ ; COMMIT", "--\nCOMMIT"),
    *("SET search_path = x", "SET SESSION x = 1", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "RESET ALL"),
    *("DISCARD ALL", "LISTEN x", "UNLISTEN *", "PREPARE x AS SELECT 1", "DEALLOCATE x", "COPY t FROM STDIN"),
]
ALLOWED = [
    *("SELECT 1", "(SELECT 1)", "INSERT INTO beginnings VALUES (1)", "UPDATE t SET x = 1", "SET LOCAL x = 1"),
    *("set constraints all deferred", "WITH x AS (SELECT 1) SELECT * FROM x", "NOTIFY x", "LOCK TABLE t", ""),
    *(
        "-- COMMIT",
        "/* COMMIT",
        "/* COMMIT */ SELECT 1",
        "DO $$ BEGIN END $$",
        "EXPLAIN SELECT 1",
        "settings",
        "VALUES (1)",
    ),
]


@pytest.mark.parametrize("statement", REFUSED)
def test_statements_that_are_refused(statement: str) -> None:
    with pytest.raises(InvalidValue, match="is refused: "):
        refuse_control(statement)


@pytest.mark.parametrize("statement", ALLOWED)
def test_statements_that_are_not(statement: str) -> None:
    refuse_control(statement)


def test_what_is_not_a_statement() -> None:
    with pytest.raises(InvalidValue, match="is not SQL"):
        refuse_control(b"COMMIT")  # type: ignore[arg-type]
