"""Intents that are part of the Commit of the step before: no Commit of their own, and the same guarantees."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast import (
    Conflict,
    Context,
    EffectState,
    Holdfast,
    Intent,
    InvalidValue,
    Retry,
    StepState,
    TaskFailed,
    testing,
)
from holdfast.model.commit import Commit, Refusal, Verdict
from holdfast.model.operations import WriteStep
from holdfast.testing import sandbox
from tests.engine.effects.support import (
    Send,
    World,
    commits_of,
    effect_of,
    effects_in,
    stand_between,
    step_states,
    writes,
)
from tests.engine.support import ended, steps_of

S = EffectState


async def choose() -> int:
    return 7


class Looking:
    """A call that notes how its effect stands in the store while it is being made."""

    def __init__(self, hold: Holdfast, world: World) -> None:
        self.seen: list[EffectState] = []
        self._hold, self._world = hold, world

    async def pay(self, amount: int, effect_id: str) -> str:
        self.seen += [effect.state for effect in await self._hold.store.effects(effect_id=effect_id)]
        return await self._world.pay(amount, effect_id)


async def test_an_intent_rides_in_the_commit_of_the_step_before(quick: Holdfast, world: World) -> None:
    """Two steps, of which one is ``once``: a Commit each, and the end of the task."""
    sent = commits_of(quick)

    @quick.task
    async def work(ctx: Context) -> str:
        amount = await ctx.step("choose", choose, arms=lambda n: [Intent("pay", world.pay, n)])
        return await ctx.step("pay", world.pay, amount, effect="once")

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 7"
    assert [[effect.state for effect in effects_in([commit])] for commit in sent] == [[S.ARMED], [S.DONE], []]
    effect = await effect_of(quick, handle)
    assert world.happened == [effect.effect_id]
    steps = await steps_of(quick, handle)
    assert (steps["pay"].state, steps["pay"].attempts) == (StepState.COMPLETED, 1)
    assert steps["pay"].started_at == next(
        op.step.started_at for op in sent[0].operations if isinstance(op, WriteStep) and op.step.key == "pay"
    )
    assert steps["pay"].started_at is not None
    assert effect.attempt == 1


async def test_a_chain_of_calls_each_of_which_arms_the_next(quick: Holdfast, world: World) -> None:
    sent = commits_of(quick)

    @quick.task
    async def work(ctx: Context) -> str:
        await ctx.step("choose", choose, arms=lambda n: [Intent("one", world.pay, n), Intent("two", world.pay, n)])
        await ctx.step("one", world.pay, 7, effect="once", arms=lambda _: [Intent("three", world.pay, 9)])
        await ctx.step("two", world.pay, 7, effect="once")
        return await ctx.step("three", world.pay, 9, effect="once")

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 9"
    assert len(sent) == 5
    assert world.amounts == [7, 7, 9]


@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_one_that_is_never_used_was_not_made(quick: Holdfast, world: World, ending: str) -> None:
    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> int:
        await ctx.step("choose", choose, arms=lambda n: [Intent("pay", world.pay, n)])
        if ending == "raises":
            raise ValueError(ending)
        return 1

    handle = await quick.submit(work)
    async with quick.worker():
        if ending == "raises":
            with pytest.raises(TaskFailed):
                await ended(handle)
        else:
            assert await ended(handle) == 1
    effect = await effect_of(quick, handle)
    assert (effect.state, effect.note) == (S.FAILED, "the call was not made")
    assert await quick.doubts() == []
    assert world.calls == []


async def test_one_whose_commit_was_refused_is_not_relied_on(quick: Holdfast, world: World) -> None:
    """The code handles the refusal and makes the call all the same: with an intent that is really there."""
    looking = Looking(quick, world)
    refused = 0

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        nonlocal refused
        if not refused and writes(commits, S.ARMED):
            refused += 1
            [commit] = commits
            before = commit.guard.sequence - 1  # type: ignore[union-attr]
            return [Verdict(task_id=commit.task_id, refusal=Refusal.CONFLICT, detail="not now", sequence=before)]
        return await send(commits)

    stand_between(quick, around)

    @quick.task
    async def work(ctx: Context) -> str:
        with pytest.raises(Conflict, match="not now"):
            await ctx.step("choose", choose, arms=lambda n: [Intent("pay", looking.pay, n)])
        return await ctx.step("pay", looking.pay, 7, effect="once")

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 7"
    assert refused == 1
    assert looking.seen == [S.ARMED]


@pytest.mark.parametrize(
    ("intent", "options"),
    [
        (lambda pay, _: Intent("pay", pay, 8), {}),
        (lambda pay, _: Intent("pay", pay, 7, timeout=1), {}),  # the call may take longer than was written down
        (lambda pay, _: Intent("pay", pay, 7), {"timeout": 1000}),
        (lambda pay, _: Intent("pay", pay, 7, settle=0), {}),
        (lambda pay, _: Intent("pay", pay, 7), {"compensate": lambda *_: None}),
        (lambda _, blocking: Intent("pay", blocking, 7), {}),
    ],
    ids=["arguments", "shorter timeout", "longer timeout", "settle", "compensate", "in a thread"],
)
async def test_one_with_other_arguments_is_armed_again(
    quick: Holdfast, world: World, intent: Callable[[Any, Any], Intent], options: dict[str, Any]
) -> None:
    sent = commits_of(quick)
    looking = Looking(quick, world)

    @quick.task
    async def work(ctx: Context) -> str:
        await ctx.step("choose", choose, arms=lambda _: [intent(looking.pay, world.pay_blocking)])
        return await ctx.step("pay", looking.pay, 7, effect="once", **options)

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 7"
    armed = [effect for effect in effects_in(sent) if effect.state is S.ARMED]
    assert len(armed) == 2
    assert armed[1] != armed[0]
    assert looking.seen == [S.ARMED]
    assert world.amounts == [7]
    assert (await effect_of(quick, handle)).arguments_hash == armed[1].arguments_hash


async def test_a_shorter_call_than_was_written_down_uses_the_intent(quick: Holdfast, world: World) -> None:
    sent = commits_of(quick)

    @quick.task
    async def work(ctx: Context) -> str:
        await ctx.step("choose", choose, arms=lambda n: [Intent("pay", world.pay, n, timeout=60)])
        return await ctx.step("pay", world.pay, 7, effect="once", timeout=30)

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 7"
    assert sum(effect.state is S.ARMED for effect in effects_in(sent)) == 1


async def test_one_that_waited_too_long_is_armed_again(app: Holdfast, world: World) -> None:
    """The code between the two took longer than a dispatch may."""

    @app.task
    async def work(ctx: Context) -> str:
        await ctx.step("choose", choose, arms=lambda n: [Intent("pay", world.pay, n)])
        await ctx.sleep(2)  # too short to give the slot back
        return await ctx.step("pay", world.pay, 7, effect="once")

    async with sandbox(app):
        sent = commits_of(app)
        handle = await app.submit(work)
        assert await handle.result() == "paid 7"
        effect = await effect_of(app, handle)
    assert [effect.state for effect in effects_in(sent)] == [S.ARMED, S.ARMED, S.DONE]
    assert effect.attempt == 2
    assert world.happened == [effect.effect_id]


async def test_a_wait_in_between_takes_it_back(app: Holdfast, world: World) -> None:
    """While the task is off its worker, no call is about to be made."""

    @app.task
    async def work(ctx: Context) -> str:
        await ctx.step("choose", choose, arms=lambda n: [Intent("pay", world.pay, n)])
        await ctx.sleep(3600)
        return await ctx.step("pay", world.pay, 7, effect="once", reconcile=world.was_paid)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.idle()
            waiting = await effect_of(app, handle)
            assert (waiting.state, waiting.note) == (S.FAILED, "the call was not made")
        assert await handle.result() == "paid 7"
        effect = await effect_of(app, handle)
    assert (effect.state, effect.effect_id) == (S.DONE, waiting.effect_id)
    assert world.happened == [effect.effect_id]
    assert world.asked == []


async def test_a_crash_between_the_two_leaves_a_doubt(app: Holdfast, world: World) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        await ctx.step("choose", choose, arms=lambda n: [Intent("pay", world.pay, n)])
        return await ctx.step("pay", world.pay, 7, effect="once", reconcile=world.was_paid)

    async with sandbox(app) as box:
        box.crash("choose", when="after_commit")
        handle = await app.submit(work)
        assert await handle.result() == "paid 7"
        effect = await effect_of(app, handle)
        assert (await step_states(app, handle))["pay"] is StepState.COMPLETED
    assert world.happened == [effect.effect_id]
    assert world.asked == [effect.effect_id] * 2, "early, and when it had settled"


async def test_a_crash_at_any_commit_neither_doubles_nor_loses_a_carried_call(app: Holdfast) -> None:
    world = World()

    @app.task
    async def work(ctx: Context) -> str:
        await ctx.step("choose", choose, arms=lambda n: [Intent("pay", world.pay, n)])
        return await ctx.step("pay", world.pay, 7, effect="once", reconcile=world.was_paid)

    async def scenario(_: testing.Sandbox) -> tuple[str, int]:
        world.happened.clear()
        return await (await app.submit(work)).result(), len(world.happened)

    survived = await testing.crash_everywhere(app, scenario)
    assert survived.result == ("paid 7", 1)
    assert survived.crashes == 2 * 3


async def test_arms_must_name_intents(quick: Holdfast, world: World) -> None:
    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> None:
        await ctx.step("choose", choose, arms=lambda n: [("pay", world.pay, n)])  # type: ignore[list-item]

    handle = await quick.submit(work)
    async with quick.worker():
        with pytest.raises(TaskFailed, match=r"return a list of Intent\(key, function, \*args\)"):
            await ended(handle)


@pytest.mark.parametrize(
    "make",
    [
        lambda pay: Intent("pay", pay, object()),
        lambda pay: Intent("pay", pay, timeout=-1),
        lambda pay: Intent("pay", pay, settle=-1),
        lambda pay: Intent("pay", pay, compensate="undo"),  # type: ignore[arg-type]
    ],
    ids=["arguments", "timeout", "settle", "compensate"],
)
async def test_an_intent_that_could_not_be_followed_is_refused(
    quick: Holdfast, world: World, make: Callable[[Any], Intent]
) -> None:
    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        with pytest.raises(InvalidValue):
            await ctx.step("choose", choose, arms=lambda _: [make(world.pay)])
        return "refused"

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "refused"
    assert await quick.store.effects() == []
