"""hold.submit(..., connection=): a task in the transaction of the caller's own connection to PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from holdfast import (
    Agent,
    AgentState,
    ArtifactRef,
    Conflict,
    Context,
    Holdfast,
    HoldfastError,
    InvalidValue,
    KeyConflict,
    QueueFull,
    StoreError,
    StoreUnavailable,
    TaskDefinition,
    TaskExists,
    Transaction,
)
from holdfast.store.postgres.connections import Connections
from holdfast.testing.contract._support import row
from tests.docs.pages import blocks
from tests.engine.api.own_connections import (
    BLOCKING_KINDS,
    KINDS,
    BlockingOwn,
    of_asyncpg,
    of_blocking_psycopg,
    of_psycopg,
    of_session,
    of_sqlalchemy,
)
from tests.engine.support import ended, until
from tests.postgres_server import PostgresServer
from tests.store.contract.truncating import EmptiedDatabase
from tests.store.postgres.support import execute

CLONE = Path(__file__).parents[3]
PAGE = CLONE / "docs" / "effects.md"


@pytest.fixture
def url(emptied_database: EmptiedDatabase) -> str:
    """An empty store, beside a table of the user's."""
    url = emptied_database.empty()
    execute(url, "DROP TABLE IF EXISTS orders, public.orders")
    execute(url, "CREATE TABLE public.orders (number integer)")
    return url


@pytest.fixture
async def hold(url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(url) as hold:
        define(hold)
        yield hold


def define(hold: Holdfast) -> TaskDefinition[[int], int]:
    @hold.task
    async def ship(ctx: Context, number: int) -> int:
        del ctx
        return number

    return ship


def orders(url: str) -> list[int]:
    return sorted(number for (number,) in execute(url, "SELECT number FROM orders"))


async def tasks(hold: Holdfast) -> list[Any]:
    """The input and key of every task, as every other connection sees them."""
    return sorted((task.user_input, task.key or "") for task in (await hold.store.find()).items)


async def test_the_task_is_there_when_the_caller_commits(hold: Holdfast, url: str) -> None:
    """A worker that looks all the time finds it then, within a second, and not before."""
    async with hold.worker():
        for number, (name, kind) in enumerate(KINDS.items()):
            with row(name):
                async with kind(url) as own:
                    await own.execute(f"INSERT INTO orders VALUES ({number})")
                    handle = await hold.submit("ship", number, connection=own.connection, labels={"by": "order"})
                    assert (await hold.store.get(handle.id), orders(url)) == (None, list(range(number)))
                    await own.commit()
                assert await ended(handle) == number
                assert (await handle.task()).labels == {"by": "order"}
    assert orders(url) == list(range(len(KINDS)))


async def test_nothing_is_there_when_the_caller_rolls_back(hold: Holdfast, url: str) -> None:
    """Nor when the connection is closed without a word; and the key is free again."""
    for name, kind in KINDS.items():
        for end in ("rollback", "close"):
            with row(name, end):
                async with kind(url) as own:
                    await own.execute("INSERT INTO orders VALUES (1)")
                    await hold.submit("ship", 1, key="k", connection=own.connection)
                    if end == "rollback":
                        await own.rollback()
                assert (await tasks(hold), orders(url)) == ([], [])


async def test_a_refusal_leaves_the_transaction_as_it_was(hold: Holdfast, url: str) -> None:
    """What the caller wrote before is there, and what comes after, too."""
    await hold.queue("small", max_pending=1)
    await hold.submit("ship", 0, key="taken")
    await hold.submit("ship", 0, queue="small")
    refused: list[tuple[type[HoldfastError], dict[str, Any]]] = [
        (QueueFull, {"queue": "small"}),
        (KeyConflict, {"key": "taken"}),
        (TaskExists, {"key": "taken", "if_exists": "reject"}),
        (Conflict, {"key": "taken", "if_exists": "replace", "queue": "other"}),
        (InvalidValue, {"priority": 10**9}),
    ]
    before = await tasks(hold)
    for number, (name, kind) in enumerate(KINDS.items()):
        async with kind(url) as own:
            await own.execute(f"INSERT INTO orders VALUES ({number})")
            for error, options in refused:
                with row(name, error.__name__), pytest.raises(error):
                    await hold.submit("ship", 1, connection=own.connection, **options)
            same = await hold.submit("ship", 0, key="taken", connection=own.connection)
            assert (await same.task()).key == "taken"
            await hold.submit("ship", number, key=f"new {number}", connection=own.connection)
            await own.commit()
    assert orders(url) == list(range(len(KINDS)))
    assert await tasks(hold) == sorted(before + [([number], f"new {number}") for number in range(len(KINDS))])


async def test_a_replacement_and_a_debounce_are_part_of_it(hold: Holdfast, url: str) -> None:
    """Rolled back, the waiting task is as before; committed, it has the new arguments."""
    ways: list[dict[str, Any]] = [
        {"if_exists": "replace", "delay": 60},
        {"debounce": timedelta(minutes=1)},
    ]
    for number, options in enumerate(ways):
        with row(*options):
            key = f"k{number}"
            first = await hold.submit("ship", 1, key=key, **options)
            before = await first.task()
            async with of_psycopg(url) as own:
                again = await hold.submit("ship", 2, key=key, connection=own.connection, **options)
                assert again.id == first.id
                assert await first.task() == before
                await own.rollback()
                assert await first.task() == before
                await hold.submit("ship", 3, key=key, connection=own.connection, **options)
                await own.commit()
            assert (await first.task()).user_input == [3]


async def test_two_submissions_of_one_key_in_one_transaction(hold: Holdfast, url: str) -> None:
    for name, kind in KINDS.items():
        with row(name):
            async with kind(url) as own:
                first = await hold.submit("ship", 1, key=name, connection=own.connection)
                same = await hold.submit("ship", 1, key=name, connection=own.connection)
                with pytest.raises(KeyConflict):
                    await hold.submit("ship", 2, key=name, connection=own.connection)
                await own.commit()
            assert first.id == same.id
    assert len(await tasks(hold)) == len(KINDS)


async def test_a_connection_to_another_database_is_refused(hold: Holdfast, postgres18: PostgresServer) -> None:
    """One without Holdfast's tables, and one with them: a copy, say. What the caller wrote there is not lost."""
    empty, copy = postgres18.create_database(), postgres18.create_database()
    async with Holdfast(copy) as other:
        await other.queue("default", max_pending=0)  # a refusal of the copy's would be of no interest
    for there in (empty, copy):
        execute(there, "CREATE TABLE orders (number integer)")
        for number, (name, kind) in enumerate(KINDS.items()):
            with row(name, there):
                async with kind(there) as own:
                    await own.execute(f"INSERT INTO orders VALUES ({number})")
                    with pytest.raises(InvalidValue, match="another database than this store"):
                        await hold.submit("ship", 1, connection=own.connection)
                    await own.commit()
        assert orders(there) == list(range(len(KINDS)))
    assert await tasks(hold) == []
    assert execute(copy, "SELECT count(*) FROM holdfast.tasks") == [(0,)]


async def test_without_an_open_transaction_it_is_refused(hold: Holdfast, url: str) -> None:
    """In autocommit mode the task would be stored whatever becomes of the rows. A transaction within it will do."""
    autocommit: dict[str, Any] = {"execution_options": {"isolation_level": "AUTOCOMMIT"}}
    ways = (
        of_psycopg(url, autocommit=True),
        of_sqlalchemy(url, **autocommit),
        of_asyncpg(url, **autocommit),
        of_session(url, **autocommit),
    )
    for number, way in enumerate(ways):
        with row(number):
            async with way as own:
                with pytest.raises(InvalidValue, match=r"no open transaction.*autocommit"):
                    await hold.submit("ship", 1, connection=own.connection)
                assert await tasks(hold) == []
    async with of_psycopg(url, autocommit=True) as own:
        async with own.connection.transaction():
            await hold.submit("ship", 1, connection=own.connection)
            assert await tasks(hold) == []
        assert await tasks(hold) == [([1], "")]


async def test_a_transaction_that_failed_before_is_refused(hold: Holdfast, url: str) -> None:
    for name, kind in KINDS.items():
        with row(name):
            async with kind(url) as own:
                with pytest.raises(Exception, match="no_such_table"):
                    await own.execute("SELECT * FROM no_such_table")
                if name in {"psycopg", "SQLAlchemy", "SQLAlchemy with asyncpg"}:  # sessions roll back by themselves
                    with pytest.raises(InvalidValue, match=r"failed before.*roll it back"):
                        await hold.submit("ship", 1, connection=own.connection)
                await own.rollback()
                await hold.submit("ship", 1, connection=own.connection)
                await own.rollback()
    assert await tasks(hold) == []


async def test_stricter_isolation_levels_are_refused(hold: Holdfast, url: str) -> None:
    """A statement would not see which key another transaction has just taken."""
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        for kind in (of_sqlalchemy, of_asyncpg, of_session):
            with row(level, kind.__name__):
                async with kind(url, execution_options={"isolation_level": level}) as own:
                    await own.execute("INSERT INTO orders VALUES (1)")
                    with pytest.raises(InvalidValue, match=f"isolation level {level.lower()}.*read committed"):
                        await hold.submit("ship", 1, connection=own.connection)
                    await own.rollback()
    assert await tasks(hold) == []


async def test_settings_of_a_connection_that_would_not_fit(hold: Holdfast, url: str) -> None:
    """It may have another encoding, or fetch all results in pieces; nothing of it is changed."""
    for number, encoding in enumerate(("LATIN1", "SQL_ASCII")):
        with row(encoding):
            async with of_psycopg(url, client_encoding=encoding) as own:
                await hold.submit("ship", number, key=f"€{number}", labels={"€": "ü"}, connection=own.connection)
                assert own.connection.pgconn.parameter_status(b"client_encoding") == encoding.encode()
                await own.commit()
    async with of_sqlalchemy(url, execution_options={"stream_results": True, "yield_per": 1}) as own:
        await hold.submit("ship", 2, key="€2", connection=own.connection)
        await own.commit()
    assert await tasks(hold) == [([number], f"€{number}") for number in range(3)]


async def test_a_transaction_that_cannot_be_written_in_is_refused(hold: Holdfast, url: str) -> None:
    """It can only read, or its statements are sent together, so that a refusal would spoil those of the caller."""
    async with of_psycopg(url) as own:
        await own.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(InvalidValue, match="begin its transaction READ WRITE"):
            await hold.submit("ship", 1, connection=own.connection)
        await own.rollback()
        async with own.connection.pipeline():
            await own.execute("INSERT INTO orders VALUES (1)")
            with pytest.raises(InvalidValue, match="pipeline mode"):
                await hold.submit("ship", 1, connection=own.connection)
        await own.commit()
    assert (await tasks(hold), orders(url)) == ([], [1])


async def test_what_is_no_such_connection_is_refused(hold: Holdfast, url: str) -> None:
    elsewhere = create_engine("sqlite://")
    with of_blocking_psycopg(url) as blocking, elsewhere.connect() as sqlite:
        async with of_psycopg(url) as own:
            for given, words in (
                (object(), "an object; give a psycopg.AsyncConnection"),
                ("postgresql://", "a str; give"),
                (own.connection.cursor(), "Cursor; give"),
                (elsewhere, "sqlalchemy.*Engine; give"),
                (blocking.connection, "blocks, and hold.submit does not; use it with hold.sync"),
                (sqlite, "blocks"),
            ):
                with row(words), pytest.raises(InvalidValue, match=words):
                    await hold.submit("ship", 1, connection=given)
    elsewhere.dispose()
    assert await tasks(hold) == []


async def test_other_stores_name_the_way_that_they_have(url: str, tmp_path: Path) -> None:
    for other in (f"sqlite:///{tmp_path}/hold.db", "memory://", f"json:///{tmp_path}/hold"):
        async with Holdfast(other) as hold, of_psycopg(url) as own:
            define(hold)
            with row(other), pytest.raises(InvalidValue, match=r"stores in PostgreSQL.*hold.transaction\(work\)"):
                await hold.submit("ship", 1, connection=own.connection)


async def test_what_cannot_be_part_of_it_is_refused(hold: Holdfast, url: str) -> None:
    async def nested(tx: Transaction, connection: object) -> None:
        await tx.execute("INSERT INTO orders VALUES (1)")
        await hold.submit("ship", 1, connection=connection)

    async with of_psycopg(url) as own:
        with pytest.raises(InvalidValue, match=r"tx\.submit"):
            await hold.transaction(nested, own.connection)
        with pytest.raises(InvalidValue, match="no option connection="):
            await hold.submit_many("ship", [(1,)], connection=own.connection)
    assert (await tasks(hold), orders(url)) == ([], [])


async def test_artifacts_do_not_go_together_with_it(hold: Holdfast, url: str) -> None:
    """Their link is written apart, and the task is not there before the caller commits. A plan is part of the input."""
    agent = hold.register(Agent("writer", instructions="Write.", model="none"))
    artifact = await hold.artifacts.write(b"text")
    async with of_psycopg(url) as own:
        for start in ({"artifacts": [artifact]}, {"state": AgentState(goal="g", artifacts=(reference(artifact.id),))}):
            with row(*start), pytest.raises(InvalidValue, match=r"artifacts= and connection= exclude each other"):
                await hold.submit(agent, "Write it.", connection=own.connection, **start)
        await hold.submit(agent, "Write it.", plan=["write"], connection=own.connection)
        await own.commit()
    assert len(await tasks(hold)) == 1


def reference(artifact_id: str) -> ArtifactRef:
    return ArtifactRef(artifact_id=artifact_id, type="text/plain", summary="", bytes=4)


async def test_a_role_without_rights_is_refused_in_our_words(hold: Holdfast, url: str) -> None:
    """And what it wrote itself is not lost."""
    execute(url, "DROP ROLE IF EXISTS clerk")
    execute(url, "CREATE ROLE clerk LOGIN PASSWORD 'secret'")
    execute(url, "GRANT USAGE ON SCHEMA public TO clerk", "GRANT INSERT ON orders TO clerk")
    try:
        for name, kind in KINDS.items():
            with row(name):
                async with kind(url) as own:
                    await own.execute("SET ROLE clerk")
                    await own.execute("INSERT INTO orders VALUES (1)")
                    with pytest.raises(StoreError, match=r"role of connection= may not write.*grants.sql"):
                        await hold.submit("ship", 1, connection=own.connection)
                    await own.commit()
        assert orders(url) == [1] * len(KINDS)
    finally:
        execute(url, "DROP OWNED BY clerk")
        execute(url, "DROP ROLE clerk")


async def one_waits(url: str) -> None:
    """Return when a session waits for a lock that another one has."""
    await until(lambda: execute(url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))


async def test_a_cancelled_caller_can_go_on(hold: Holdfast, url: str) -> None:
    """Cancelled while it waits for another transaction that has the key: what it wrote before is not lost."""
    async with of_psycopg(url) as first, of_psycopg(url) as second:
        await hold.submit("ship", 1, key="k", connection=first.connection)
        await second.execute("INSERT INTO orders VALUES (1)")
        waiting = asyncio.create_task(hold.submit("ship", 2, key="k", connection=second.connection))
        await one_waits(url)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await first.rollback()
        await hold.submit("ship", 3, key="k", connection=second.connection)
        await second.commit()
    assert (await tasks(hold), orders(url)) == ([([3], "k")], [1])


async def test_one_of_two_that_wait_for_each_other_can_go_on(hold: Holdfast, url: str) -> None:
    """PostgreSQL ends a deadlock by an error for one of them; only its submission is undone."""
    async with of_psycopg(url) as first, of_psycopg(url) as second:
        await second.execute("INSERT INTO orders VALUES (1)")
        await hold.submit("ship", 1, key="a", connection=first.connection)
        await hold.submit("ship", 2, key="b", connection=second.connection)
        await second.execute("SET LOCAL deadlock_timeout = '10ms'")
        await first.execute("SET LOCAL deadlock_timeout = '600s'")
        other = asyncio.create_task(hold.submit("ship", 1, key="b", connection=first.connection))
        await one_waits(url)
        with pytest.raises(StoreUnavailable, match="your transaction is as it was before"):
            await hold.submit("ship", 2, key="a", connection=second.connection)
        await second.commit()
        with pytest.raises(KeyConflict):
            await other
        await first.commit()
    assert (await tasks(hold), orders(url)) == ([([1], "a"), ([2], "b")], [1])


async def test_submissions_at_once_on_one_connection(hold: Holdfast, url: str) -> None:
    """One after the other: what undoes a refused one must not undo its neighbours. (Sessions refuse it themselves.)"""
    await hold.queue("small", max_pending=0)
    kinds = {name: kind for name, kind in KINDS.items() if "session" not in name}
    for name, kind in kinds.items():
        with row(name):
            async with kind(url) as own:
                queues = ["default", "small"] * 5
                answers = await asyncio.gather(
                    *(hold.submit("ship", 1, queue=queue, connection=own.connection) for queue in queues),
                    return_exceptions=True,
                )
                assert [isinstance(answer, QueueFull) for answer in answers] == [False, True] * 5, answers
                await own.commit()
    assert len(await tasks(hold)) == 5 * len(kinds)


async def test_a_lost_connection(hold: Holdfast, url: str) -> None:
    for name, kind in KINDS.items():
        with row(name):
            opened = kind(url)
            own = await opened.__aenter__()
            found = await own.execute("SELECT pg_backend_pid() AS pid")
            pid = (await found.fetchone())["pid"] if name == "psycopg" else found.scalar()
            execute(url, f"SELECT pg_terminate_backend({pid}, 10000)")
            with pytest.raises(StoreUnavailable, match="connection= was lost"):
                await hold.submit("ship", 1, connection=own.connection)
            await own.connection.close()
    assert await tasks(hold) == []


async def test_it_costs_three_statements_there_and_one_here(
    hold: Holdfast, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[str] = []
    fetch = Connections.fetch

    async def counted(self: Connections, query: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        here.append(query)
        return await fetch(self, query, *args, **options)

    async with of_psycopg(url) as own:
        await own.execute("SELECT 1")
        monkeypatch.setattr(Connections, "fetch", counted)
        there: list[str] = []
        run = psycopg.AsyncRawCursor.execute

        async def noted(self: Any, query: bytes, *args: Any, **options: Any) -> Any:  # noqa: ANN401
            if self.connection is own.connection:
                there.append(next(line.split()[0] for line in query.decode().splitlines() if line[:2] != "--"))
            return await run(self, query, *args, **options)

        monkeypatch.setattr(psycopg.AsyncRawCursor, "execute", noted)
        await hold.submit("ship", 1, connection=own.connection)
        await own.rollback()
    assert there == ["SAVEPOINT", "SELECT", "RELEASE"]
    assert len([query for query in here if "pg_postmaster_start_time" in query]) == 1


async def test_what_the_page_shows(url: str) -> None:
    """Its block is not run with the page, because it needs a server."""
    [block] = [block for block in blocks(PAGE) if block.file == "orders.py"]
    there: dict[str, Any] = {}
    code = block.body.replace("postgresql://shop@db.internal/shop", url).replace("INTO orders", "INTO public.orders")
    exec(code, there)  # noqa: S102 - the page is ours
    async with there["hold"] as hold, hold.worker():
        async with of_psycopg(url) as own, of_session(url) as session:
            await there["place"](own.connection, 1)
            await own.commit()
            await there["place_in_session"](session.connection, 2)
        for task in (await hold.store.find()).items:
            assert await ended(hold.handle(task.id)) == f"order {task.user_input[0]} is on its way"
    assert orders(url) == [1, 2]


# Blocking


def test_blocking_connections(url: str) -> None:
    """Committed, rolled back and refused, as with the others; and each is used in the thread of its owner."""
    hold = Holdfast(url)
    define(hold)
    with hold.sync as h, h.worker():
        h.queue("small", max_pending=0)
        for number, (name, kind) in enumerate(BLOCKING_KINDS.items()):
            with row(name), kind(url) as own:
                check_blocking(h, url, own, number)
        assert orders(url) == list(range(len(BLOCKING_KINDS)))


def check_blocking(h: Any, url: str, own: BlockingOwn, number: int) -> None:  # noqa: ANN401
    own.execute("INSERT INTO orders VALUES (100)")
    lost = h.submit("ship", 100, connection=own.connection)
    own.rollback()
    own.execute(f"INSERT INTO orders VALUES ({number})")
    with pytest.raises(QueueFull):
        h.submit("ship", 1, queue="small", connection=own.connection)
    handle = h.submit("ship", number, key=str(number), connection=own.connection)
    assert h.wait(h._hold.store.get(handle.id)) is None
    own.commit()
    assert handle.result(timeout=60) == number
    assert h.wait(h._hold.store.get(lost.id)) is None
    with pytest.raises(KeyConflict):
        h.submit("ship", 100, key=str(number), connection=own.connection)
    own.rollback()
    assert orders(url) == list(range(number + 1))


def test_threads_that_share_a_blocking_connection(url: str) -> None:
    """As above; psycopg lets threads share one."""
    hold = Holdfast(url)
    define(hold)
    with hold.sync as h, of_blocking_psycopg(url) as own, ThreadPoolExecutor(4) as pool:
        h.queue("small", max_pending=0)

        def submit(queue: str) -> bool:
            try:
                h.submit("ship", 1, queue=queue, connection=own.connection)
            except QueueFull:
                return False
            return True

        assert list(pool.map(submit, ["default", "small"] * 10)) == [True, False] * 10
        own.commit()
    assert execute(url, "SELECT count(*) FROM holdfast.tasks") == [(10,)]


def test_what_a_blocking_caller_cannot_use(url: str) -> None:
    hold = Holdfast(url)
    define(hold)
    elsewhere = create_engine("sqlite://")
    with hold.sync as h, elsewhere.connect() as sqlite:
        own = h.wait(psycopg.AsyncConnection.connect(url))
        for given, words in (
            (own, "is async, and hold.sync blocks; use it with hold.submit"),
            (sqlite, "a connection to sqlite, and this store is in PostgreSQL"),
            (object(), "an object; give"),
        ):
            with row(words), pytest.raises(InvalidValue, match=words):
                h.submit("ship", 1, connection=given)
        with of_blocking_psycopg(url) as blocking, blocking.connection.pipeline():
            given = blocking.connection
            with row("pipeline"), pytest.raises(InvalidValue, match="pipeline mode"):
                h.submit("ship", 1, connection=given)
        with pytest.raises(InvalidValue, match="no option conection="):
            h.submit("ship", 1, connection=own, conection=own)  # type: ignore[call-overload]
        h.wait(own.close())
    elsewhere.dispose()


# Kills


def test_a_killed_process_leaves_all_or_nothing(url: str) -> None:
    """Killed between its submission and its COMMIT, or right after that."""
    for point, expected in (("before", []), ("after", [1])):
        with row(point):
            ended = subprocess.run(
                [sys.executable, "-m", "tests.engine.api.test_own_connection", url, point],
                cwd=CLONE,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            while execute(url, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'doomed'"):
                pass  # the server has not noticed yet
            found = execute(url, "SELECT convert_from(user_input, 'UTF8') FROM holdfast.inputs")
            assert (orders(url), found) == (expected, [(f"[{number}]",) for number in expected])


async def be_killed(url: str, point: str) -> None:
    async with Holdfast(url) as hold, of_psycopg(url, application_name="doomed") as own:
        define(hold)
        await own.execute("INSERT INTO orders VALUES (1)")
        await hold.submit("ship", 1, connection=own.connection)
        if point == "after":
            await own.commit()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(be_killed(*sys.argv[1:]))
