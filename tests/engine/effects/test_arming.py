"""A call that must not be made blindly twice is durable before it is made, and is made once."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import hashlib
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import (
    Context,
    Effect,
    EffectState,
    Happened,
    Holdfast,
    NotHappened,
    Retry,
    Step,
    StepState,
    decode,
    testing,
)
from holdfast.testing import sandbox
from holdfast.testing.crashes import When
from tests.engine.effects.support import A_WHILE, World, commits_of, effect_of, stands
from tests.engine.support import crashing_worker, ended, steps_of, until

S = EffectState


# Before the call, and after it


async def test_the_intent_is_durable_before_the_call_with_its_exact_arguments(hold: Holdfast) -> None:
    seen: list[tuple[Effect, Step]] = []

    async def pay(amount: int, to: dict[str, str], effect_id: str) -> str:
        [effect] = await hold.store.effects(effect_id=effect_id)
        [step] = await hold.store.steps(effect.task_id)
        seen.append((effect, step))
        return "paid"

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, {"iban": "DE1"}, effect="once", timeout=30, settle=7)

    handle = await hold.submit(work)
    async with hold.worker():
        assert await ended(handle) == "paid"
    [(armed, step)] = seen
    assert armed.state is S.ARMED
    assert armed.effect_class == "once"
    assert (armed.task_id, armed.step_key, armed.round, armed.attempt) == (handle.id, "pay", 1, 1)
    assert armed.fence == step.fence > 0
    assert decode(armed.arguments) == [5, {"iban": "DE1"}]
    assert armed.arguments_hash == hashlib.sha256(armed.arguments).hexdigest() == step.digest
    assert armed.dispatch_by is not None
    assert armed.settle_at == armed.dispatch_by + timedelta(seconds=30 + 7)
    assert armed.thread_of is None
    assert (step.state, step.effect_id) == (StepState.RUNNING, armed.effect_id)
    done = await effect_of(hold, handle)
    assert (done.state, done.effect_id, done.arguments) == (S.DONE, armed.effect_id, armed.arguments)
    assert done.result is None, "a call's own result is the output of its step"
    step = (await steps_of(hold, handle))["pay"]
    assert (step.state, step.attempts, step.effect_id) == (StepState.COMPLETED, 1, armed.effect_id)


async def test_a_blocking_call_names_the_worker_in_whose_thread_it_runs(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_blocking, 5, effect="once")

    handle = await quick.submit(work)
    async with quick.worker() as worker:
        assert await ended(handle) == "paid 5"
        assert (await effect_of(quick, handle)).thread_of == worker.id


@pytest.mark.parametrize("effect", [None, "pure", "idempotent"])
async def test_a_call_that_may_be_repeated_needs_no_intent(quick: Holdfast, world: World, effect: str | None) -> None:
    """One Commit for the step, one for the end of the task."""
    sent = commits_of(quick)

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect=effect)

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert len(sent) == 2
    assert await quick.store.effects() == []


async def test_a_once_step_costs_two_commits(quick: Holdfast, world: World) -> None:
    """Armed; done with its result. The third is the end of the task."""
    sent = commits_of(quick)

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once")

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert len(sent) == 3


async def test_a_completed_one_replays_and_is_not_armed_again(quick: Holdfast, world: World) -> None:
    @quick.task(retry=Retry(max_attempts=3, initial=0.0))
    async def work(ctx: Context) -> str:
        paid = await ctx.step("pay", world.pay, 5, effect="once")
        if ctx.attempt < 3:
            raise ConnectionError("something else")
        return paid

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert len(world.calls) == 1
    assert (await effect_of(quick, handle)).attempt == 1


# The arguments


async def test_every_call_gets_what_was_written_down(quick: Holdfast) -> None:
    """Whatever the caller, the function or the tool do to the objects they are handed."""
    seen: list[tuple[str, list[int]]] = []
    order = [1]

    async def pay(items: list[int]) -> str:
        seen.append(("pay", items.copy()))
        items.append(len(seen))
        order.append(len(seen))
        if len(seen) == 1:
            raise NotHappened("not yet")
        raise ConnectionResetError

    async def was_paid(effect_id: str, items: list[int]) -> Happened:
        seen.append(("was_paid", items.copy()))
        items.clear()
        return Happened("paid")

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=2, initial=0.0)
        paying = ctx.step("pay", pay, order, effect="once", retry=retry, reconcile=was_paid, settle=0)
        return await paying

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid"
    assert seen == [("pay", [1]), ("pay", [1]), ("was_paid", [1])]
    assert decode((await effect_of(quick, handle)).arguments) == [[1]]


# Crashes


@pytest.mark.parametrize("store", ["memory://", "json:///{}/box", "sqlite:///{}/box.db"])
@pytest.mark.parametrize(
    ("when", "asked", "took"),
    [
        ("before_effect", 2, 66.0),  # armed, not called: the store cannot know that, so the tool is asked again
        ("after_effect", 1, 30.0),  # called, not recorded: the tool knows, and the worker is provably dead
        ("after_commit", 0, 30.0),  # recorded: only the lease has to run out
    ],
)
async def test_a_crash_around_the_call(
    app: Holdfast, world: World, tmp_path: Path, *, store: str, when: When, asked: int, took: float
) -> None:
    """The call is made once, and that it did not happen is believed only when it is over for certain."""

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", reconcile=world.was_paid, timeout=60, settle=5)

    async with sandbox(app, url=store.format(tmp_path)) as box:
        box.crash("pay", when=when)
        handle = await app.submit(work)
        assert await handle.result() == "paid 5"
        effect = await effect_of(app, handle)
        passed = (await box.trace(handle)).took.total_seconds()
    assert effect.state is S.DONE
    assert world.calls == world.happened == [effect.effect_id]
    assert world.asked == [effect.effect_id] * asked
    assert took <= passed < took + 5, "a worker looks for what is due once a second"


async def test_a_crash_at_any_commit_neither_doubles_nor_loses_a_call(app: Holdfast) -> None:
    world = World()

    @app.task
    async def work(ctx: Context) -> list[str]:
        await ctx.step("choose", lambda: 7)
        first = await ctx.step("first", world.pay, 7, effect="once", reconcile=world.was_paid)
        second = await ctx.step("second", world.pay, 8, effect="once", reconcile=world.was_paid)
        return [first, second]

    async def scenario(box: testing.Sandbox) -> tuple[list[str], list[int], list[str]]:
        world.happened.clear()
        world.amounts.clear()
        result = await (await app.submit(work)).result()
        states = [effect.state.value for effect in await app.store.effects()]
        return result, world.amounts.copy(), states

    survived = await testing.crash_everywhere(app, scenario)
    assert survived.result == (["paid 7", "paid 8"], [7, 8], ["done", "done"])
    assert survived.crashes == 2 * 6


async def test_another_worker_takes_a_call_over_as_doubt(hold: Holdfast, world: World) -> None:
    """In real time, on every kind of store."""

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.hang, 5, effect="once", reconcile=world.was_paid, timeout=A_WHILE, settle=0.05
        )

    handle = await hold.submit(work)
    async with crashing_worker(hold):
        await until(lambda: world.calls)
        before = await stands(hold, handle, S.ARMED)
        assert await hold.doubts() == [], "it is under way"
    [doubt] = await hold.doubts()
    assert doubt.effect == before, "the worker that armed it is dead: it is a doubt without any write"
    assert doubt.decisions == (), "the engine finds out by itself"
    async with hold.worker():
        assert await ended(handle) == "paid 5"
    after = await effect_of(hold, handle)
    assert (after.state, after.effect_id) == (S.DONE, before.effect_id)
    assert world.calls == world.asked == [before.effect_id]
    assert before.settle_at is not None
    assert after.updated_at is not None
    # Sooner it may still have been on its way. (A database has a clock of its own, which is known not quite exactly.)
    assert after.updated_at > before.settle_at - timedelta(seconds=0.5)


async def test_several_once_steps_at_the_same_time(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> list[str]:
        steps = (ctx.step("pay", world.pay, n, key=f"pay-{n}", effect="once") for n in range(20))
        return list(await asyncio.gather(*steps))

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == [f"paid {n}" for n in range(20)]
    assert len(set(world.happened)) == 20
    assert {effect.state for effect in await quick.store.effects()} == {S.DONE}
