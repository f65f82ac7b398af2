"""Residents whose own task has limits: they give their places to others, and wait for them when they go on."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, LimitUse, ManualClock, StepState, TaskState
from holdfast.model.flow_limit import PermitRequest, PermitReturn
from holdfast.model.worker import NewWorker
from tests.engine.support import count_moves, ended, pass_time, steps_of, until


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


async def take(hold: Holdfast, key: str) -> None:
    """Take the permit of a step of another process."""
    await hold.store.register(NewWorker(id="other", lease=80_000.0))
    request = PermitRequest(id="other", task_id="other", worker_id="other", keys=[key], lasts=80_000.0)
    [answer] = await hold.store.take_permits([request])
    assert answer.granted


async def leave(hold: Holdfast) -> None:
    await hold.store.return_permits([PermitReturn(id="other")])


async def waiting_for(hold: Holdfast, key: str) -> int:
    [found] = await hold.limits(key)
    return found.waiting


@pytest.mark.parametrize("place", ["limit", "queue"])
async def test_who_waits_for_a_permit_keeps_its_place_for_a_while(
    timed: Holdfast, clock: ManualClock, place: str
) -> None:
    """And if it has lost it then, no permit waits with it: otherwise two tasks could take turns at being late."""
    await timed.limit("tenant", concurrency=1)
    await timed.limit("api", concurrency=1)
    await timed.queue("default", concurrency=1 if place == "queue" else None)
    calls: list[str] = []

    @timed.task
    async def work(ctx: Context, name: str) -> None:
        for _ in range(3):
            await ctx.step("ask", lambda: calls.append(name), limits=["api"])

    async def pass_until(condition: Callable[[], Any]) -> None:
        """Let time pass, so slowly that the store can follow."""
        while not ((answer := condition()) is True or (answer is not False and await answer)):
            await pass_time(clock, 0.5)
            await asyncio.sleep(0.01)

    def wait_in_line(count: int) -> Callable[[], Any]:
        async def check() -> bool:
            return await waiting_for(timed, "api") == count

        return check

    async def both_rest() -> bool:
        return all([(await handle.task()).resting for handle in handles])

    await take(timed, "api")
    limits = ["tenant"] if place == "limit" else []
    handles = [await timed.submit(work, name, limits=limits) for name in "ab"]
    async with timed.worker(lease=80_000.0):
        await until(wait_in_line(1))
        await pass_until(lambda: clock.boot() >= 30.0)
        assert not (await handles[0].task()).resting
        assert (await steps_of(timed, handles[0]))["holdfast:limit"].state is StepState.PENDING
        assert await waiting_for(timed, "api") == 1  # the other one has not begun, only to wait as well
        await pass_until(wait_in_line(2))
        await pass_until(both_rest)
        await leave(timed)
        # Less time than either would wait for its place.
        for _ in range(8):
            with suppress(AssertionError):
                await until(lambda: len(calls) >= 3, patience=1.0)
                break
            await pass_time(clock, 0.5)
        assert len(calls) >= 3
        await pass_until(lambda: len(calls) == 6)
        for handle in handles:
            await ended(handle)
    assert sorted(calls) == ["a"] * 3 + ["b"] * 3
