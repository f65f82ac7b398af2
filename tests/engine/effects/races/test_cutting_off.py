"""A branch is cancelled, or its task taken off its worker, while what it wrote is on its way to the store."""

import asyncio

import pytest

from holdfast import Context, EffectState, Holdfast
from holdfast.testing import Sandbox
from tests.engine.effects.races.support import slow_to_answer
from tests.engine.effects.support import World, effect_of
from tests.engine.support import ended, settle

S = EffectState


@pytest.mark.parametrize(
    ("state", "stands", "calls"),
    [(S.DONE, (S.DONE, None), 1), (S.ARMED, (S.FAILED, "the call was not made"), 0)],
    ids=["its result", "its intent"],
)
async def test_a_commit_whose_branch_is_cancelled_is_known_all_the_same(
    quick: Holdfast, world: World, state: EffectState, stands: tuple[EffectState, str | None], calls: int
) -> None:
    """A sibling fails. What is done stays done; what was not called is not a doubt."""

    @quick.task
    async def work(ctx: Context) -> str:
        async def fail() -> None:
            await written.wait()
            raise ValueError("the sibling failed")

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("pay", world.pay, 5, effect="once", settle=0.1))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup, match="unhandled"):
            await both()
        return "over"

    written = slow_to_answer(quick, state)
    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "over"
    assert written.is_set()
    effect = await effect_of(quick, handle)
    assert (effect.state, effect.note) == stands
    assert len(world.calls) == calls
    assert await quick.doubts() == []


async def test_a_task_is_not_taken_off_its_worker_while_a_call_is_being_armed(box: Sandbox, world: World) -> None:
    """In a branch that is not awaited at the moment, beside a root that sleeps."""
    hold = box.hold

    @hold.task
    async def work(ctx: Context) -> str:
        branch = asyncio.create_task(ctx.step("pay", world.pay, 5, effect="once", settle=0.1))
        await ctx.sleep(600)
        return await branch

    written = slow_to_answer(hold, S.ARMED)
    handle = await hold.submit(work)
    assert await ended(handle) == "paid 5"
    assert written.is_set()
    assert len(world.calls) == 1
    effect = await effect_of(hold, handle)
    assert (effect.state, effect.attempt) == (S.DONE, 1)
    assert await hold.doubts() == []


async def test_a_task_is_not_taken_off_its_worker_while_a_result_is_being_recorded(box: Sandbox, world: World) -> None:
    hold = box.hold

    @hold.task
    async def work(ctx: Context) -> str:
        branch = asyncio.create_task(ctx.step("pay", world.pay, 5, effect="once", settle=0.1))
        await settle()
        await ctx.sleep(600)
        return await branch

    written = slow_to_answer(hold, S.DONE)
    handle = await hold.submit(work)
    assert await ended(handle) == "paid 5"
    assert written.is_set()
    assert len(world.calls) == 1
    assert (await effect_of(hold, handle)).state is S.DONE
    assert await hold.doubts() == []
