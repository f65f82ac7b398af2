"""Wherever a step can be, a ``once`` step can be: in verifiers, under approvals, in machines and single runs."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from holdfast import (
    Ask,
    Context,
    EffectState,
    Goto,
    Holdfast,
    Machine,
    NotHappened,
    Retry,
    StepState,
    TaskFailed,
    testing,
)
from holdfast.model.commit import Commit, Verdict
from holdfast.testing import sandbox
from tests.engine.effects.support import (
    Send,
    World,
    effect_of,
    effects_by_key,
    open_doubt,
    stand_between,
    step_states,
    writes,
)
from tests.engine.support import ended, until

S = EffectState


@pytest.mark.parametrize("when", ["before_effect", "after_effect"])
async def test_in_a_verifier(app: Holdfast, world: World, when: str) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, "work", effect="once")

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        paid = await ctx.step("pay", world.pay, "check", effect="once", reconcile=world.was_paid)
        return paid == "paid check"

    async with sandbox(app) as box:
        box.crash("verify/pay", when=when)  # type: ignore[arg-type]
        handle = await app.submit(work)
        assert await handle.result() == "paid work"
        effects = await effects_by_key(app, handle)
    assert {key: effect.state for key, effect in effects.items()} == {"pay": S.DONE, "verify/pay": S.DONE}
    assert world.amounts == ["work", "check"]
    early = 1 if when == "before_effect" else 0  # said "absent", which decided nothing
    assert world.asked == [effects["verify/pay"].effect_id] * (1 + early)


async def test_in_a_verifier_that_asks_a_person(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return "done"

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        await ctx.step("notify", world.pay_then_lose_the_answer, 5, effect="once", settle=0)
        return True

    handle = await quick.submit(work)
    async with quick.worker():
        await quick.resolve(await open_doubt(quick, handle), "happened", by="anna")
        assert await ended(handle) == "done"
    assert len(world.calls) == 1


async def test_when_it_is_run_by_name(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once")

    handle = await quick.submit(work)
    assert await quick.run(handle) == "paid 5"
    assert (await effect_of(quick, handle)).state is S.DONE


async def test_in_a_machine(app: Holdfast) -> None:
    """Each visit of a state makes a call of its own, and no visit makes it twice, wherever it crashes."""
    world = World()
    machine = Machine("rates", initial="due", transitions={"due": ["due", "paid"]}, final=["paid"], data=int)

    @machine.state("due")
    async def pay_a_rate(ctx: Context, paid: int) -> Goto[int]:
        await ctx.step("pay", world.pay, paid, effect="once", reconcile=world.was_paid)
        return Goto("due" if paid < 2 else "paid", paid + 1)

    rates = app.register(machine)

    async def scenario(_: testing.Sandbox) -> tuple[list[int], int, set[EffectState]]:
        world.happened.clear()
        world.amounts.clear()
        handle = await app.submit(rates, 0)
        await handle.result()
        return world.amounts.copy(), len(set(world.happened)), {effect.state for effect in await app.store.effects()}

    survived = await testing.crash_everywhere(app, scenario)
    assert survived.result == ([0, 1, 2], 3, {S.DONE})
    assert survived.crashes > 12


@pytest.mark.parametrize("why", ["a slow store", "a proof", "a doubt"])
async def test_under_an_approval_that_is_needed_once(app: Holdfast, world: World, why: str) -> None:
    """The approval of a call holds until it is made."""
    fired = 0

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        nonlocal fired
        verdicts = await send(commits)
        if why == "a slow store" and writes(commits, S.ARMED) and not fired:
            fired += 1
            box.clock.advance(2.0)
        return verdicts

    if why == "a proof":
        world.raises = [NotHappened("not yet")]
    elif why == "a doubt":
        world.raises = [ConnectionResetError("lost")]

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=2, initial=0.0)
        return await ctx.step(
            "pay", world.pay, 5, effect="once", retry=retry, reconcile=world.was_paid, approval=Ask("Pay 5?")
        )

    async with sandbox(app) as box:
        stand_between(app, around)
        handle = await app.submit(work)
        await until(lambda: app.approvals(handle))
        [asked] = await app.approvals(handle)
        assert world.calls == []
        await app.approve(asked.id, by="anna")
        assert await handle.result() == "paid 5"
        effect = await effect_of(app, handle)
        approvals = await app.store.approvals(task_id=handle.id)
    assert (effect.state, effect.attempt) == (S.DONE, 2)
    assert effect.approval_id == asked.id
    assert [one.consumed_by for one in approvals] == [effect.effect_id]
    assert len(world.happened) == 1
    assert fired == (why == "a slow store")


async def test_times_may_be_timedeltas(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay, 5, effect="once", timeout=timedelta(minutes=2), settle=timedelta(seconds=3)
        )

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    effect = await effect_of(quick, handle)
    assert effect.settle_at is not None
    assert effect.dispatch_by is not None
    assert effect.settle_at - effect.dispatch_by == timedelta(seconds=123)


async def test_arguments_that_are_too_much_are_refused_before_anything_is_written(
    quick: Holdfast, world: World
) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, "x" * (64 << 20), effect="once")

    handle = await quick.submit(work)
    async with quick.worker():
        with pytest.raises(TaskFailed, match="arguments of step 'pay'"):
            await ended(handle)
    assert await quick.store.effects() == []
    assert world.calls == []


@dataclass
class Shop:
    """A tool that brings its own terms along."""

    world: World
    effect: str = "once"

    async def __call__(self, amount: int, effect_id: str) -> str:
        return await self.world.pay_then_lose_the_answer(amount, effect_id)

    async def reconcile(self, effect_id: str, amount: int) -> object:
        return await self.world.was_paid(effect_id, amount)


async def test_a_tool_may_bring_its_own_terms(quick: Holdfast, world: World) -> None:
    shop = Shop(world)

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", shop, 5, settle=0)

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    effect = await effect_of(quick, handle)
    assert (effect.effect_class, effect.state) == ("once", S.DONE)
    assert world.asked == world.calls == [effect.effect_id]
    assert await step_states(quick, handle) == {"pay": StepState.COMPLETED}
