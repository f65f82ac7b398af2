"""A newer version migrates a PostgreSQL store while a worker of this one is at work on it."""

import asyncio

import pytest

from holdfast import Context, Holdfast, SchemaMismatch, TaskState
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import execute

PATIENCE = 60.0


async def test_a_worker_finishes_what_it_holds_claims_no_more_and_says_why(postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    hold = Holdfast(url)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @hold.task
    async def job(ctx: Context) -> str:
        begun.set()
        await go_on.wait()
        return await ctx.step("work", lambda: "done")

    async def go_on_after(claiming: asyncio.Task[None]) -> None:
        await asyncio.wait([claiming])
        await hold.submit(job, key="second")
        go_on.set()

    async def work() -> None:
        async with hold.worker(concurrency=2) as worker:  # it has room for another task
            await begun.wait()
            execute(url, "INSERT INTO holdfast.migrations VALUES (9999, 'future', 'x', now())")
            worker._host.beat_soon()
            assert worker._work is not None
            going_on = asyncio.create_task(go_on_after(worker._work))
            try:
                await worker.join()
            finally:
                await going_on

    async with hold, asyncio.timeout(PATIENCE):
        first = await hold.submit(job)
        with pytest.raises(SchemaMismatch, match="restart it with the newer version"):
            await work()
        assert await first.result() == "done"
        assert [task.key for task in await hold.store.list_by_state(TaskState.PENDING)] == ["second"]
    postgres18.drop_database(url)
