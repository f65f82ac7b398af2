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

    async with hold:
        first = await hold.submit(job)
        # With room for another task, and heartbeats every third of a second.
        with pytest.raises(SchemaMismatch, match="restart it with the newer version"):
            async with asyncio.timeout(PATIENCE), hold.worker(concurrency=2, lease=1) as worker:
                await begun.wait()
                execute(url, "INSERT INTO holdfast.migrations VALUES (9999, 'future', 'x', now())")
                assert worker._work is not None
                await asyncio.wait([worker._work])
                second = await hold.submit(job)
                go_on.set()
                await worker.join()
        assert await first.result(timeout=PATIENCE) == "done"
        assert (await second.task()).state is TaskState.PENDING
    postgres18.drop_database(url)
