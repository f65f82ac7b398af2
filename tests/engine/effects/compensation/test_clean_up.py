"""What the code that is looked at for its undos has opened is closed again."""

from __future__ import annotations

import asyncio
from types import TracebackType

import pytest

from holdfast import Context, Holdfast, Retry, TaskFailed


class Pool:
    """A pool of connections: giving one back takes a moment, as it does with a server."""

    def __init__(self) -> None:
        self.taken = 0

    async def __aenter__(self) -> None:
        self.taken += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.sleep(0.01)
        self.taken -= 1


async def test_a_search_for_undos_lets_code_clean_up() -> None:
    pool, undone = Pool(), list[int]()

    async def undo(result: int) -> None:
        undone.append(result)

    async with Holdfast("memory://") as hold:

        @hold.task(retry=Retry(max_attempts=1))
        async def saga(ctx: Context) -> None:
            async with pool:
                await ctx.step("first", lambda: 1, compensate=undo)
                await ctx.step("second", lambda: 2, compensate=undo)
            raise ValueError("no")

        async with hold.worker():
            with pytest.raises(TaskFailed):
                await (await hold.submit(saga)).result(timeout=60)
    assert undone == [2, 1]
    assert pool.taken == 0
