"""Forks at steps inside steps: what stands around the point is done by the fork itself."""

import uuid

import pytest

from holdfast import Conflict, Context, Holdfast, Retry, TaskFailed
from holdfast.engine.attempt.scope import INSIDE

PATIENCE = 60


async def test_a_fork_at_an_inner_step_goes_on_inside_the_steps_around_it(hold: Holdfast) -> None:
    done: list[str] = []

    async def do(what: str) -> str:
        done.append(what)
        return what

    @hold.task
    async def job(ctx: Context) -> list[str]:
        async def middle() -> list[str]:
            return [await ctx.step("pay", do, "pay", effect="once"), await ctx.step("mail", do, "mail", effect="once")]

        async def outer() -> list[str]:
            await ctx.step("first", do, "first")
            return await ctx.step("middle", middle)

        return [*await ctx.step("outer", outer), await ctx.step("last", do, "last")]

    async with hold.worker():
        handle = await hold.submit(job)
        expected = ["pay", "mail", "last"]
        assert await handle.result(timeout=PATIENCE) == expected
        done.clear()
        for at, again in {
            f"outer{INSIDE}middle{INSIDE}pay": ["mail", "last"],
            f"outer{INSIDE}first": ["pay", "mail", "last"],
            f"outer{INSIDE}middle": ["last"],
            "outer": ["last"],
        }.items():
            fork = await hold.fork(handle, at=at)
            assert await fork.result(timeout=PATIENCE) == expected
            assert done == again, at
            done.clear()


async def test_a_fork_inside_a_once_step_is_refused(hold: Holdfast) -> None:
    async def one() -> int:
        return 1

    @hold.task
    async def job(ctx: Context) -> int:
        async def outer() -> int:
            return await ctx.step("inner", one)

        return await ctx.step("outer", outer, effect="once")

    async with hold.worker():
        handle = await hold.submit(job)
        await handle.result(timeout=PATIENCE)
        with pytest.raises(Conflict, match="'once' step"):
            await hold.fork(handle, at=f"outer{INSIDE}inner")
        assert await (await hold.fork(handle, at="outer")).result(timeout=PATIENCE) == 1


async def test_numbers_are_the_origins_in_the_shared_past_and_the_forks_own_behind_it(hold: Holdfast) -> None:
    """Also where the past is passed without entering the steps that it stands in."""
    seen: list[uuid.UUID] = []

    async def nothing() -> None: ...

    @hold.task
    async def job(ctx: Context) -> tuple[uuid.UUID, uuid.UUID]:
        async def outer() -> None:
            seen.append(ctx.uuid())
            await ctx.step("inner", nothing)

        before = ctx.uuid()
        await ctx.step("outer", outer)
        await ctx.step("between", nothing)
        return before, ctx.uuid()

    async with hold.worker():
        handle = await hold.submit(job)
        before, after = await handle.result(timeout=PATIENCE)
        at_outer = await (await hold.fork(handle, at="outer")).result(timeout=PATIENCE)
        inside = await (await hold.fork(handle, at=f"outer{INSIDE}inner")).result(timeout=PATIENCE)
    assert at_outer[0] == inside[0] == before
    assert len({after, at_outer[1], inside[1]}) == 3
    assert len(seen) == 2
    assert len(set(seen)) == 1, "the fork draws inside the step what its origin drew there"


async def test_a_fork_of_a_failed_task_repeats_what_it_failed_by_however_deep(hold: Holdfast) -> None:
    broken, paid = [True], []

    async def pay() -> None:
        paid.append(1)

    async def fail() -> str:
        if broken:
            raise RuntimeError("no paper")
        return "done"

    @hold.task(retry=Retry(max_attempts=1))
    async def job(ctx: Context) -> str:
        async def outer() -> str:
            await ctx.step("pay", pay, effect="once")
            return await ctx.step("fail", fail)

        return await ctx.step("outer", outer)

    async with hold.worker():
        handle = await hold.submit(job)
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)
        broken.clear()
        assert await (await hold.fork(handle)).result(timeout=PATIENCE) == "done"
    assert paid == [1]


async def test_what_was_done_inside_a_shared_step_is_not_done_again_in_a_new_round_of_the_fork(hold: Holdfast) -> None:
    paid = []

    async def pay() -> None:
        paid.append(1)

    async def nothing() -> None: ...

    @hold.task(retry=Retry(max_attempts=1))
    async def job(ctx: Context) -> str:
        async def outer() -> None:
            await ctx.step("pay", pay, effect="once")

        await ctx.step("outer", outer)
        await ctx.step("last", nothing)
        if ctx.task.round == 1:
            raise RuntimeError("no paper")
        return "done"

    async with hold.worker():
        handle = await hold.submit(job)
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)
        fork = await hold.fork(handle, at="outer")
        origin = await hold.forked_from(fork)
        assert origin is not None
        assert origin.step == "outer"
        with pytest.raises(TaskFailed):
            await fork.result(timeout=PATIENCE)
        await hold.retry(fork)
        assert await fork.result(timeout=PATIENCE) == "done"
    assert paid == [1]
