"""A ``once`` step keeps its worker while it is being made, and no longer."""

from __future__ import annotations

from holdfast import Context, Holdfast, Retry, TaskState
from holdfast.testing import sandbox
from tests.engine.effects.support import World


async def test_a_long_pause_between_two_tries_holds_no_worker(world: World) -> None:
    hold = Holdfast("memory://")
    world.raises = [ConnectionRefusedError("refused"), None]

    @hold.task
    async def order(ctx: Context) -> str:
        retry = Retry(max_attempts=2, initial=60, max_delay=60, jitter="none")
        return await ctx.step("pay", world.pay, 1, effect="once", retry=retry)

    async with sandbox(hold) as box:
        handle = await box.hold.submit(order)
        assert await handle.result() == "paid 1"
        moves = await box.hold.store.history(handle.id)
    assert TaskState.WAITING in {move.to_state for move in moves}
    assert len(world.calls) == 2
    assert len(set(world.calls)) == 1
