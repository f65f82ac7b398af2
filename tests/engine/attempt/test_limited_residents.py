"""Residents whose own task has limits: they give their places to others, and wait for them when they go on."""

import asyncio
from typing import Any

from holdfast import Context, Handle, Holdfast, LimitUse, TaskState
from tests.engine.support import count_moves, ended, until


async def use(hold: Holdfast) -> LimitUse:
    [found] = await hold.limits("tenant")
    return found


async def rests(handle: Handle[Any]) -> None:
    async def is_resting() -> bool:
        return (await handle.task()).resting

    await until(is_resting)


async def test_a_resident_gives_its_place_to_others_and_waits_for_it_when_it_goes_on(hold: Holdfast) -> None:
    await hold.limit("tenant", concurrency=1)
    steps: list[str] = []
    at_work, go_on = asyncio.Event(), asyncio.Event()

    @hold.task(limits=["tenant"])
    async def resident(ctx: Context) -> str:
        await asyncio.wait_for(ctx.wait_event("go"), 300)  # nothing proves that it only waits: it stays
        await ctx.step("after", lambda: steps.append("resident"))
        return "done"

    @hold.task(limits=["tenant"])
    async def other(ctx: Context) -> None:
        async def work() -> None:
            at_work.set()
            await go_on.wait()
            steps.append("other")

        await ctx.step("work", work)

    first = await hold.submit(resident)
    async with hold.worker():
        await rests(first)
        second = await hold.submit(other)
        await at_work.wait()
        assert (await use(hold)).taken == 1
        await hold.emit("go")
        await asyncio.sleep(0.3)  # it would go on now, had it a place
        assert steps == []
        go_on.set()
        await ended(second)
        assert await ended(first) == "done"
    assert steps == ["other", "resident"]
    assert (await use(hold)).taken == 0


async def test_a_resident_that_gets_no_place_for_long_goes_back_into_its_queue(hold: Holdfast) -> None:
    await hold.limit("tenant", concurrency=1)
    at_work, go_on = asyncio.Event(), asyncio.Event()

    @hold.task(limits=["tenant"])
    async def resident(ctx: Context) -> str:
        await asyncio.wait_for(ctx.wait_event("go"), 300)
        return await ctx.step("after", lambda: "done")

    @hold.task(limits=["tenant"])
    async def other(ctx: Context) -> None:
        async def work() -> None:
            at_work.set()
            await go_on.wait()

        await ctx.step("work", work)

    first = await hold.submit(resident)
    async with hold.worker():
        await rests(first)
        second = await hold.submit(other)
        await at_work.wait()
        await hold.emit("go")

        async def is_back() -> bool:
            return await count_moves(hold, first, TaskState.PENDING) == 2

        await until(is_back)
        assert (await first.task()).owner is None
        go_on.set()
        await ended(second)
        assert await ended(first) == "done"
