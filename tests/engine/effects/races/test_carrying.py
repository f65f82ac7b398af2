"""Intents that ride in the Commit of the step before, where something else comes between the two."""

# ruff: noqa: ARG001 - tools, their probes and their undos all take what the step was called with

import pytest

from holdfast import Context, EffectState, Holdfast, Intent, Machine, StepState
from holdfast.testing import Sandbox, sandbox
from tests.engine.effects.races.support import ONE_TRY, Agency, failed
from tests.engine.effects.support import World, effect_of, effects_by_key, step_states
from tests.engine.support import ended

S = EffectState


async def choose() -> int:
    return 5


@pytest.mark.parametrize("pause", [0, 600], ids=["at once", "after a wait"])
async def test_an_unused_intent_has_no_effect(box: Sandbox, world: World, pause: int) -> None:
    """The call that comes is another one than was announced, in the same attempt or in a later one."""
    hold = box.hold

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        amount = await ctx.step("choose", choose, arms=lambda amount: [Intent("pay", world.pay, amount)])
        if pause:
            await ctx.sleep(pause)
        return await ctx.step("pay", world.pay, amount + 1, effect="once")

    handle = await hold.submit(work)
    assert await ended(handle) == "paid 6"
    assert world.amounts == [6]
    assert (await effect_of(hold, handle)).state is S.DONE


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_what_arms_raises_does_not_keep_a_result_from_being_known(
    box: Sandbox, world: World, effect: str
) -> None:
    """The call was made, and what it returned is recorded: the error is that of the code."""
    hold = box.hold
    broken = [True]

    def follow(paid: str) -> list[Intent]:
        if broken:
            raise LookupError(f"nothing follows {paid}")
        return []

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect=effect, arms=follow)

    handle = await hold.submit(work)
    assert "nothing follows paid 5" in str(await failed(handle))
    assert await hold.doubts() == []
    assert (await step_states(hold, handle))["pay"] is StepState.COMPLETED
    broken.clear()
    await hold.resume(handle)
    assert await ended(handle) == "paid 5"
    assert len(world.calls) == 1


def shop_of(world: World) -> Machine[dict[str, object]]:
    shop = Machine[dict[str, object]]("shop", initial="open", transitions={"open": ["closed"]}, final=["closed"])

    async def was_paid(effect_id: str, amount: int) -> object:
        return await world.was_paid(effect_id, amount)

    @shop.state("open")
    async def sell(ctx: Context, data: dict[str, object]) -> str:
        amount = await ctx.step("choose", choose, arms=lambda amount: [Intent("pay", world.pay, amount, timeout=20)])
        await ctx.step("pay", world.pay, amount, effect="once", reconcile=was_paid, timeout=20)
        return "closed"

    return shop


@pytest.mark.parametrize("crashes", [False, True])
async def test_an_intent_in_a_machine_is_that_of_the_step_in_the_same_state(
    app: Holdfast, world: World, crashes: bool
) -> None:
    """Not one under a key that is never called, which a crash would leave as a doubt for ever."""
    task = app.register(shop_of(world))
    async with sandbox(app) as box:
        if crashes:
            box.crash("shop:1/choose", when="after_commit")
        handle = await app.submit(task, {})
        assert (await ended(handle)).state == "closed"
        effects = await effects_by_key(app, handle)
        assert {key: effect.state for key, effect in effects.items()} == {"shop:1/pay": S.DONE}
        assert await app.doubts() == []
    assert len(world.happened) == 1
    assert bool(world.asked) is crashes


def saga_of(agency: Agency) -> Machine[dict[str, object]]:
    saga = Machine[dict[str, object]](
        "saga", initial="book", transitions={"book": ["pay"], "pay": ["over"]}, final=["over"]
    )

    @saga.state("book")
    async def book(ctx: Context, data: dict[str, object]) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=agency.release)
        return "pay"

    @saga.state("pay", timeout=600, retry=ONE_TRY)
    async def pay(ctx: Context, data: dict[str, object]) -> str:
        await ctx.step("insurance", agency.reserve, "insurance", compensate=agency.release)
        await ctx.step("pay", agency.pay)
        return "over"

    return saga


async def test_the_steps_of_a_machine_are_undone_when_it_fails(app: Holdfast) -> None:
    """Those of the states that it has left as well, although their handlers are not called by any other replay."""
    agency = Agency()
    task = app.register(saga_of(agency))
    async with sandbox(app):
        handle = await app.submit(task, {})
        assert "declined" in str(await failed(handle))
        assert await app.doubts() == []
        assert agency.book == ["+flight", "+hotel", "+insurance", "-insurance", "-hotel", "-flight"]


async def test_a_machine_does_not_go_on_from_a_state_whose_steps_before_it_were_undone(app: Holdfast) -> None:
    agency = Agency()
    task = app.register(saga_of(agency))
    async with sandbox(app):
        handle = await app.submit(task, {})
        await failed(handle)
        agency.declines = False
        await app.resume(handle)
        error = await failed(handle)
        assert "JournalMismatch" in str(error)
        assert "hold.retry" in str(error)
        assert len(agency.ids) == 3
        await app.retry(handle)
        assert (await ended(handle)).state == "over"
    assert agency.book[6:] == ["+flight", "+hotel", "+insurance"]
    assert len(set(agency.ids)) == 6
