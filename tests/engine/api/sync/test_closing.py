"""Closing at any moment, also while the store still connects for its hints: it ends, and leaves no connection."""

import asyncio
import gc

from holdfast import Context, Holdfast
from tests.postgres_server import PostgresServer

ROUNDS = 80


async def test_it_closes_while_it_is_about_to_listen(postgres18: PostgresServer) -> None:
    hold = Holdfast(postgres18.create_store())

    @hold.task
    async def reports(ctx: Context) -> None:
        await ctx.progress(1)

    async def open_and_close(seconds: float) -> None:
        async with hold:
            handle = await hold.submit(reports)
            watching = asyncio.create_task(handle.result())
            await asyncio.sleep(seconds)
            watching.cancel()
            await asyncio.wait([watching])

    for number in range(ROUNDS):
        closing = asyncio.create_task(open_and_close(number / ROUNDS * 0.012))
        await asyncio.wait([closing], timeout=60)
        assert closing.done()
        await closing
    gc.collect()  # a connection that was forgotten complains when it is collected, and warnings are errors
