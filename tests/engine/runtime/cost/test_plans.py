"""No query of a working engine reads a large table from end to end."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg

from holdfast import Context, Holdfast, NewTask, StateStore
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.sqlite import SqliteStore
from tests.everyday import FULL

ROWS = 100_000 if FULL else 30_000
AT_ONCE = 5_000
FEW = 2_000
"""Rows that all queries of the run together may read without an index: small tables such as workers and waits."""


async def nothing() -> str:
    return "done"


def define(hold: Holdfast) -> Any:  # noqa: ANN401
    @hold.task
    async def child(ctx: Context) -> int:  # noqa: ARG001
        return 1

    @hold.task
    async def work(ctx: Context) -> int:
        await ctx.step("step", nothing)
        await ctx.progress(1, 2, "half")
        await ctx.sleep(0.01)
        await ctx.wait_event("go")
        children = [await ctx.submit(child) for _ in range(3)]
        return sum(await asyncio.gather(*(one.result() for one in children)))

    return work


async def fill(store: StateStore) -> None:
    """Half of the rows finished, half pending in another queue, so that every table has its share."""
    worker = await store.register(NewWorker(lease=3600))
    for number in range(ROWS // AT_ONCE):
        queue = "finished" if number % 2 else "other"
        await store.submit([NewTask(name="filler", queue=queue, key=None) for _ in range(AT_ONCE)])
    for number in range(ROWS // 2 // 1000):
        claim = Claim(worker_id=worker.id, number=number + 1, limit=1000, queues=["finished"], names=["filler"])
        done = Move(to=TaskState.COMPLETED, reason="filled")
        await store.commit(
            [
                Commit(task_id=one.task.id, guard=Held(worker.id, one.fence, 1), operations=(done,))
                for one in await store.claim(claim)
            ]
        )
    await store.retire(worker.id)


async def use_everything(hold: Holdfast, work: Any) -> None:  # noqa: ANN401
    """Whatever workers and callers do all day."""
    async with hold.worker(concurrency=20, lease=2):
        handles = [await hold.submit(work, key=f"key-{n}", deadline=timedelta(minutes=5)) for n in range(20)]
        await asyncio.sleep(0.8)  # a heartbeat, sweeps, looks at the queue
        await hold.emit("go")
        for handle in handles:
            assert await handle.result(timeout=60) == 3
    late = await hold.submit(work, delay=60)
    await hold.cancel(late)


async def test_sqlite_reads_by_index_only(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path}/plans.db", durable=False)
    work = define(hold)
    scanned: Counter[str] = Counter()

    def note(event: dict[str, Any]) -> None:
        scanned[event["sql"]] += event["stmt_status"]["SQLITE_STMTSTATUS_FULLSCAN_STEP"]

    async with hold:
        await fill(hold.store)
        store = hold.store
        assert isinstance(store, SqliteStore)
        assert store._backend.writer is not None
        assert store._backend.reader is not None
        for connection in (store._backend.writer._connection, store._backend.reader.connection):
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
        await use_everything(hold, work)
        for connection in (store._backend.writer._connection, store._backend.reader.connection):
            connection.trace_v2(0, None)
    assert scanned, "nothing was traced"
    assert scanned.total() < FEW, scanned.most_common(5)


async def test_postgresql_reads_by_index_only(postgres_url: str) -> None:
    hold = Holdfast(postgres_url)
    work = define(hold)
    async with hold:
        await fill(hold.store)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("ANALYZE")
            before = _rows_read_in_sequence(connection)
            await use_everything(hold, work)
            after = _rows_read_in_sequence(connection)
    large = {
        table: after[table] - before.get(table, 0)
        for table in after
        if after[table] - before.get(table, 0) >= ROWS // 4
    }
    assert not large, large


def _rows_read_in_sequence(connection: psycopg.Connection[Any]) -> dict[str, int]:
    connection.execute("SELECT pg_stat_force_next_flush()")
    connection.execute("SELECT pg_sleep(1.2)")  # other sessions tell at most once a second
    rows = connection.execute("SELECT relname, seq_tup_read FROM pg_stat_user_tables").fetchall()
    return dict(rows)
