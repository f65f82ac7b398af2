"""SQLite: one writer for a process, a gate between processes, and what SQL of a user's may not touch."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from holdfast import InvalidValue, ManualClock, NewTask, StoreBusy, StoreError
from holdfast.model.worker import NewWorker, WorkerState
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite import writer as writing
from holdfast.store.sqlite.statements import OWN_TABLES
from holdfast.store.transaction import StoreTransaction
from tests.engine.steps.transaction.support import A_WHILE, LONG, Bookings, ask, seats
from tests.engine.support import until
from tests.ready_schema import new_file

BOOKINGS = Bookings("sqlite:")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(new_file(tmp_path / "hold.db")) as store:
        await BOOKINGS.create(store)
        yield store


class Open:
    """A transaction that stays open, with a row in it, until the test says how it ends."""

    def __init__(self, store: SqliteStore, *, timeout: float = LONG) -> None:
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.task = asyncio.create_task(store.transact(self._work, timeout=timeout))

    async def _work(self, tx: StoreTransaction) -> tuple[None, None]:
        await BOOKINGS.book(tx, "1A")
        self.inside.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return None, None


async def is_free(path: Path) -> bool:
    """Whether the gate is open for other processes."""
    with Path(f"{path}-gate").open() as gate:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(gate, fcntl.LOCK_UN)
        return True


@pytest.mark.parametrize("end", ["commit", "error", "timeout", "cancel"])
async def test_the_gate_is_held_while_it_is_open_and_left_however_it_ends(
    store: SqliteStore, tmp_path: Path, end: str
) -> None:
    path = tmp_path / "hold.db"
    opened = Open(store, timeout=A_WHILE if end == "timeout" else LONG)
    async with asyncio.timeout(LONG):
        await opened.inside.wait()
    assert not await is_free(path)
    stranger = apsw.Connection(str(path))
    with pytest.raises(apsw.BusyError):
        stranger.execute("BEGIN IMMEDIATE")
    match end:
        case "cancel":
            opened.task.cancel()
        case "error":
            opened.error = LookupError()
            opened.go_on.set()
        case "commit":
            opened.go_on.set()
    await asyncio.wait([opened.task])
    await until(lambda: is_free(path))
    stranger.execute("BEGIN IMMEDIATE")
    stranger.execute("ROLLBACK")
    stranger.close()
    assert await seats(store) == (["1A"] if end == "commit" else [])
    assert store._backend.writer is not None
    assert store._backend.writer.foreign_version() is not None


async def test_readers_the_probe_and_hints_go_on_meanwhile(store: SqliteStore) -> None:
    await store.submit([NewTask(id="a", name="job")])
    async with store.listen() as listener:
        await listener.wait(0)
        opened = Open(store)
        await opened.inside.wait()
        writer = store._backend.writer
        assert writer is not None
        assert writer.foreign_version() is None  # the connection is in use
        assert (await store.get("a")) is not None
        assert (await store.load("a")).task.id == "a"
        assert len((await store.find()).items) == 1
        await asyncio.sleep(0.05)  # the probe looks many times
        write = asyncio.create_task(store.submit([NewTask(id="b", name="job", queue="later")]))
        await asyncio.sleep(0.05)
        assert not write.done()
        opened.go_on.set()
        await write
        topics: set[str] = set()
        async with asyncio.timeout(LONG):
            while "queue:later" not in topics:
                topics |= await listener.wait()
    assert await seats(store) == ["1A"]


async def test_another_process_that_waits_is_let_in(store: SqliteStore, tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "hold.db") as other:
        opened = Open(store)
        await opened.inside.wait()
        write = asyncio.create_task(other.submit([NewTask(id="late", name="job")]))
        waits = asyncio.create_task(ask(other, BOOKINGS.insert, "2B"))
        await asyncio.sleep(0.05)
        assert not write.done()
        opened.go_on.set()
        await asyncio.gather(opened.task, write, waits)
        assert await seats(other) == ["1A", "2B"]


async def test_a_caller_that_gives_up_at_the_gate(store: SqliteStore, tmp_path: Path) -> None:
    with (tmp_path / "hold.db-gate").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        caller = asyncio.create_task(ask(store, BOOKINGS.insert, "1A"))
        await asyncio.sleep(0.05)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        fcntl.flock(gate, fcntl.LOCK_UN)
    await until(lambda: is_free(tmp_path / "hold.db"))
    await store.submit([NewTask(name="job")])
    assert await seats(store) == []


async def test_a_program_that_knows_no_gate_is_waited_for_and_given_up(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BUSY_TIMEOUT_MS", 50)
    stranger = apsw.Connection(store.path)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        await ask(store, BOOKINGS.insert, "1A")
    stranger.execute("ROLLBACK")
    stranger.close()
    await ask(store, BOOKINGS.insert, "2B")
    assert await seats(store) == ["2B"]


async def test_statements_run_off_the_loop(store: SqliteStore) -> None:
    """A slow one must not keep everything else from going on."""
    slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000) SELECT count(*) FROM n"
    turns = 0
    counting = asyncio.create_task(ask(store, slow))
    while not counting.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert (await counting) == [(3_000_000,)]
    assert turns > 5


async def test_no_worker_is_declared_dead_because_of_a_long_transaction(tmp_path: Path) -> None:
    """No heartbeat could be written meanwhile: all leases lapsed together, and no worker died."""
    clock = ManualClock()
    async with SqliteStore(new_file(tmp_path / "hold.db"), clock=clock) as store:
        await store.register(NewWorker(id="alive", lease=2))

        async def work(tx: StoreTransaction) -> tuple[None, None]:
            await tx.execute("SELECT 1")
            clock.advance(5)
            return None, None

        await store.transact(work, timeout=LONG)
        await store.sweep()
        assert [worker.state for worker in await store.workers()] == [WorkerState.LIVE]
        clock.advance(5)
        await store.sweep()
        assert [worker.state for worker in await store.workers()] == [WorkerState.DEAD]


# What a user's SQL may not do


def test_the_tables_that_are_guarded_are_those_of_a_new_store(tmp_path: Path) -> None:
    async def tables() -> set[str]:
        async with SqliteStore(tmp_path / "new.db") as store:
            return {
                name for (name,) in await ask(store, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")
            }

    assert asyncio.run(tables()) == OWN_TABLES


REFUSED = {
    "INSERT INTO tasks (id) VALUES ('x')": "Holdfast's own",
    "UPDATE tasks SET state = 'completed'": "Holdfast's own",
    "DELETE FROM steps": "Holdfast's own",
    "DROP TABLE workers": "Holdfast's own",
    "DROP VIEW shown_tasks": "Holdfast's own",
    "ALTER TABLE events ADD COLUMN mine": "Holdfast's own",
    "CREATE INDEX mine ON tasks (id)": "Holdfast's own",
    "CREATE TRIGGER mine AFTER INSERT ON tasks BEGIN SELECT 1; END": "Holdfast's own",
    "ANALYZE": "Holdfast's own",
    "CREATE TEMP TABLE tasks (id)": "stay on a connection",
    "CREATE TEMP VIEW steps AS SELECT 1": "stay on a connection",
    "ATTACH ':memory:' AS other": "stay on a connection",
    "DETACH main": "stay on a connection",
    "PRAGMA journal_mode = delete": "more than this transaction",
    "PRAGMA synchronous = off": "more than this transaction",
    "PRAGMA foreign_keys = off": "more than this transaction",
    "EXPLAIN COMMIT": "begun and ended around",
}


@pytest.mark.parametrize("statement", REFUSED)
async def test_what_is_refused(store: SqliteStore, statement: str) -> None:
    with pytest.raises(InvalidValue, match=REFUSED[statement]):
        await ask(store, statement)
    await store.submit([NewTask(name="job")])  # and the store itself may still do all of that
    await store.register(NewWorker())


async def test_a_trigger_of_ones_own_cannot_do_it_either(store: SqliteStore) -> None:
    await ask(store, "CREATE TRIGGER sly AFTER INSERT ON bookings BEGIN UPDATE tasks SET state = 'completed'; END")
    with pytest.raises(InvalidValue, match="tasks is Holdfast's own"):
        await ask(store, BOOKINGS.insert, "1A")
    assert await seats(store) == []


async def test_a_commit_that_holdfast_prepared_is_not_found_in_the_cache(store: SqliteStore) -> None:
    """The very text that Holdfast itself runs, in the statement cache since it opened."""
    await store.submit([NewTask(name="job")])
    for text in ("COMMIT", "ROLLBACK", "BEGIN IMMEDIATE"):
        with pytest.raises(InvalidValue, match="begun and ended around"):
            await ask(store, text)


ALLOWED = [
    "SELECT count(*) FROM tasks",
    "PRAGMA table_info(bookings)",
    "SELECT name FROM pragma_table_info('bookings')",
    "CREATE INDEX mine ON bookings (seat)",
    "ALTER TABLE bookings ADD COLUMN name TEXT",
    "CREATE TABLE more AS SELECT * FROM bookings",
    "CREATE VIRTUAL TABLE texts USING fts5 (body)",
    "PRAGMA defer_foreign_keys = on",
    "WITH new (seat) AS (VALUES ('5E')) INSERT INTO bookings (seat) SELECT seat FROM new RETURNING seat",
    "",
]


@pytest.mark.parametrize("statement", ALLOWED)
async def test_what_is_allowed(store: SqliteStore, statement: str) -> None:
    await ask(store, statement)
    await store.submit([NewTask(name="job")])


@pytest.mark.parametrize("statement", ["INSERT OR ROLLBACK INTO only VALUES (1)", "INSERT INTO sly VALUES (1)"])
async def test_a_statement_that_rolls_back_by_itself(store: SqliteStore, statement: str) -> None:
    """SQLite ends the transaction; whatever came after would be committed alone."""
    await ask(store, "CREATE TABLE only (x UNIQUE)")
    await ask(store, "INSERT INTO only VALUES (1)")
    await ask(store, "CREATE TABLE sly (x)")
    await ask(store, "CREATE TRIGGER ends AFTER INSERT ON sly BEGIN SELECT RAISE(ROLLBACK, 'enough'); END")

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await BOOKINGS.book(tx, "1A")
        with pytest.raises(StoreError):
            await tx.execute(statement)
        with pytest.raises(InvalidValue, match="failed"):
            await BOOKINGS.book(tx, "2B")
        return None, None

    with pytest.raises(InvalidValue, match="went on"):
        await store.transact(work, timeout=LONG)
    assert await seats(store) == []
