"""The one writer of a process: where it runs, what it survives."""

from __future__ import annotations

import asyncio
import fcntl
import threading
from pathlib import Path

import apsw
import pytest

from holdfast import ManualClock, NewTask, Step, StepState, StoreError, TaskState
from holdfast.model.commit import Commit, Expect, Held
from holdfast.model.operations import Move, WriteStep
from holdfast.model.worker import Claim, NewWorker, Worker
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.commit import LARGE_BYTES
from holdfast.store.sqlite.gate import FileGate
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.store.sqlite.writer import INLINE_ITEMS
from tests.ready_schema import new_file

PATIENCE = 60.0
"""Seconds before something that does not happen fails its test."""

LEASE = 30.0


@pytest.fixture
async def store(tmp_path: Path) -> SqliteStore:  # type: ignore[misc]
    async with SqliteStore(new_file(tmp_path / "agents.db")) as opened:
        yield opened


def thread_of(tx: WriteTransaction) -> int:
    del tx
    return threading.get_ident()


async def test_a_lone_write_runs_on_the_loop_and_costs_no_thread(store: SqliteStore) -> None:
    assert await store._backend.write(thread_of) == threading.get_ident()


async def test_only_the_first_write_waits_in_the_thread_and_the_order_is_kept(
    store: SqliteStore, tmp_path: Path
) -> None:
    order: list[int] = []

    async def write(number: int) -> int:
        def work(tx: WriteTransaction) -> int:
            order.append(number)
            return thread_of(tx)

        return await store._backend.write(work)

    with (tmp_path / "agents.db-gate").open() as gate:  # another process is writing
        fcntl.flock(gate, fcntl.LOCK_EX)
        writes = [asyncio.create_task(write(number)) for number in range(5)]
        await asyncio.sleep(0.05)
        assert not any(write.done() for write in writes)
        fcntl.flock(gate, fcntl.LOCK_UN)
    first, *others = await asyncio.gather(*writes)
    assert first != threading.get_ident()
    assert set(others) == {threading.get_ident()}
    assert order == [0, 1, 2, 3, 4]


async def test_a_larger_batch_does_not_wait_for_the_disk_on_the_loop(store: SqliteStore) -> None:
    threads = record_commits(store)
    await store.submit([NewTask(name="work") for _ in range(INLINE_ITEMS)])
    await store.submit([NewTask(name="work") for _ in range(INLINE_ITEMS + 1)])
    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()


async def test_a_commit_of_many_bytes_is_not_written_on_the_loop(store: SqliteStore) -> None:
    worker = NewWorker(lease=LEASE)
    await store.register(worker)
    await store.submit([NewTask(name="work")])
    [claimed] = await store.claim(Claim(worker_id=worker.id, number=1, limit=1, names=["work"]))
    threads = record_commits(store)
    for number, size in enumerate((LARGE_BYTES, LARGE_BYTES + 1), start=1):
        line = Step(key=f"n{number}", kind="step", position=number, state=StepState.COMPLETED, output=b"x" * size)
        guard = Held(worker.id, claimed.task.fence, number)
        [verdict] = await store.commit([Commit(task_id=claimed.task.id, guard=guard, operations=(WriteStep(line),))])
        assert verdict.refusal is None
    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()


async def test_what_was_done_on_the_loop_is_committed_though_its_caller_is_cancelled(store: SqliteStore) -> None:
    writer = store._backend.writer
    assert writer is not None
    threads = record_commits(store)
    go_on = threading.Event()
    writer._thread.submit(go_on.wait, PATIENCE)  # the COMMIT has to wait for its thread
    tasks = [NewTask(id=f"task-{number:02}", name="work") for number in range(INLINE_ITEMS + 1)]
    caller = asyncio.create_task(store.submit(tasks))
    await asyncio.sleep(0.01)
    caller.cancel()
    beside = asyncio.create_task(store.submit([NewTask(id="beside", name="work")]))
    await asyncio.sleep(0.01)
    assert not threads
    assert not beside.done()
    go_on.set()
    await beside
    assert caller.cancelled()
    assert len(threads) == 2
    assert (await store.count())[TaskState.PENDING] == len(tasks) + 1


def record_commits(store: SqliteStore) -> list[int]:
    """Return the list of the threads that commit from now on."""
    writer = store._backend.writer
    assert writer is not None
    threads: list[int] = []
    commit = writer._commit

    def recording(connection: apsw.Connection) -> None:
        threads.append(threading.get_ident())
        commit(connection)

    writer._commit = recording
    return threads


async def test_the_loop_goes_on_while_another_process_writes(store: SqliteStore, tmp_path: Path) -> None:
    with (tmp_path / "agents.db-gate").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        write = asyncio.create_task(store.submit([NewTask(id="late", name="work")]))
        for _ in range(20):
            await asyncio.sleep(0.001)  # each turn of the loop comes back at once
        assert await store.get("late") is None
        fcntl.flock(gate, fcntl.LOCK_UN)
    await write
    assert await store.get("late") is not None


async def test_a_program_that_knows_no_gate_is_waited_for(store: SqliteStore) -> None:
    stranger = apsw.Connection(store.path)
    stranger.execute("BEGIN IMMEDIATE")
    write = asyncio.create_task(store.submit([NewTask(id="late", name="work")]))
    await asyncio.sleep(0.05)
    assert not write.done()
    stranger.execute("COMMIT")
    await write
    stranger.close()


async def test_a_cancelled_caller_does_not_let_two_writers_at_the_connection(
    store: SqliteStore, tmp_path: Path
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(tx: WriteTransaction) -> None:
        began.set()
        go_on.wait(PATIENCE)
        tx.run("set_limit", "account", "steps", 1)

    with (tmp_path / "agents.db-gate").open() as gate:  # push it to the thread
        fcntl.flock(gate, fcntl.LOCK_EX)
        caller = asyncio.create_task(store._backend.write(slow))
        await asyncio.sleep(0.02)
        fcntl.flock(gate, fcntl.LOCK_UN)
    assert await asyncio.to_thread(began.wait, PATIENCE)
    caller.cancel()
    await asyncio.sleep(0)
    beside = asyncio.create_task(store._backend.write(thread_of))
    await asyncio.sleep(0.02)
    assert not beside.done()
    go_on.set()
    await beside
    assert [account.limit for account in await store.accounts("account")] == [1]


async def test_a_full_disk_writes_nothing_and_says_so(store: SqliteStore) -> None:
    """On SQLITE_FULL SQLite may end the whole transaction by itself; a statement after that would commit alone."""
    await store.submit([NewTask(id="before", name="work")])

    def shrink(tx: WriteTransaction) -> None:
        pages = tx._connection.pragma("page_count")
        tx._connection.pragma("max_page_count", pages + 1)

    await store._backend.write(shrink)
    big = [NewTask(id=f"big-{n}", name="work", user_input="x" * 100_000) for n in range(3)]
    with pytest.raises(StoreError, match="free disk space"):
        await store.submit(big)
    assert [task.id for task in (await store.find()).items] == ["before"]

    await store._backend.write(lambda tx: tx._connection.pragma("max_page_count", 1_000_000))
    assert all(submitted.created for submitted in await store.submit(big))


async def test_a_transaction_sqlite_ended_is_never_half_committed(store: SqliteStore) -> None:
    def ended(tx: WriteTransaction) -> None:
        tx.run("set_limit", "account", "first", 1)
        tx.statement("ROLLBACK")  # what SQLite does by itself on an interrupt
        tx.run("next_event_number", "channel")

    with pytest.raises(StoreError, match="ended the transaction"):
        await store._backend.write(ended)
    assert await store.accounts("account") == []


async def test_what_the_database_itself_refuses_spoils_one_commit_only(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A legal-looking move the CHECK constraint refuses: as if the model and the schema had come apart."""
    await store.submit([NewTask(id=name, name="work") for name in ("one", "two", "three")])
    monkeypatch.setattr("holdfast.model.commit.is_legal", lambda *_: True)

    def move(task_id: str, to: TaskState) -> Commit:
        return Commit(task_id=task_id, guard=Expect(), operations=(Move(to=to, reason="test"),))

    verdicts = await store.commit(
        [move("one", TaskState.CANCELLED), move("two", TaskState.COMPLETED), move("three", TaskState.CANCELLED)]
    )
    assert [verdict.applied for verdict in verdicts] == [True, False, True]
    assert "the database refused it" in verdicts[1].detail
    assert len(await store.history("two")) == 1


async def test_no_worker_is_declared_dead_after_all_waited_at_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All leases expire together while one process holds the lock; no worker died."""
    clock, at_the_gate = ManualClock(), threading.Event()
    enter = FileGate.enter

    def enter_late(gate: FileGate) -> None:
        at_the_gate.set()  # and it has looked at the clock
        enter(gate)

    monkeypatch.setattr(FileGate, "enter", enter_late)
    async with SqliteStore(new_file(tmp_path / "agents.db"), clock=clock) as store:
        worker = await working(store)
        with (tmp_path / "agents.db-gate").open() as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            at_the_gate.clear()
            sweep = asyncio.create_task(store.sweep())
            assert await asyncio.to_thread(at_the_gate.wait, PATIENCE)
            clock.advance(LEASE)
            fcntl.flock(gate, fcntl.LOCK_UN)
        assert (await sweep).recovered == ()
        await store.heartbeat(worker.id)  # it lives, and has its lease again
        clock.advance(LEASE)
        assert (await store.sweep()).recovered == ("held",)


async def test_without_a_stall_a_lapsed_lease_is_death(tmp_path: Path) -> None:
    clock = ManualClock()
    async with SqliteStore(new_file(tmp_path / "agents.db"), clock=clock) as store:
        await working(store)
        clock.advance(LEASE)
        assert (await store.sweep()).recovered == ("held",)


async def working(store: SqliteStore) -> Worker:
    """Return a worker that has claimed its task."""
    worker = await store.register(NewWorker(lease=LEASE))
    await store.submit([NewTask(id="held", name="work")])
    assert await store.claim(Claim(worker_id=worker.id, number=1, limit=1, names=("work",)))
    return worker


@pytest.mark.parametrize("kept_short", [True, False])
async def test_the_wal_is_restarted_when_sqlites_own_checkpoints_do_not_get_to(
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    kept_short: bool,
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.writer._LONG_WAL_PAGES", 256 if kept_short else 1 << 40)
    monkeypatch.setattr("holdfast.store.sqlite.writer._CHECKPOINT_PAGES", 256 if kept_short else 1 << 40)
    async with SqliteStore(store.path):  # the WAL stays
        await store.close()
        await store.open()
    for n in range(100):
        await store.submit([NewTask(id=f"t{n}", name="work", user_input="x" * 50_000)])
    assert (Path(f"{store.path}-wal").stat().st_size < 2 << 20) == kept_short


async def test_two_stores_in_one_process_take_turns(store: SqliteStore) -> None:
    async with SqliteStore(store.path) as other:
        await asyncio.gather(
            *(
                owner.submit([NewTask(id=f"{n}-{k}", name="work")])
                for n, owner in enumerate((store, other))
                for k in range(50)
            )
        )
        assert await other.count() == {TaskState.PENDING: 100}
