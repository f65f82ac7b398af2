"""Which call a journaled one is: the same arguments under the same key, in this round and in later ones."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Context, EffectState, Holdfast, JournalMismatch, Retry, StepFailed, TaskFailed
from holdfast.testing import sandbox
from tests.engine.effects.support import World, effect_of, open_doubt, stands
from tests.engine.support import ended, until

S = EffectState
TWICE = Retry(max_attempts=2, initial=0.0)


@dataclass
class Order:
    """What the code passes now; a test changes it as a new version of the code would."""

    amount: int = 5


# In the same round


async def test_other_arguments_than_recorded_are_refused(hold: Holdfast, world: World) -> None:
    """On every kind of store; and the old ones are found again."""
    order, broken = Order(), True

    @hold.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        paid = await ctx.step("pay", world.pay, order.amount, effect="once")
        if broken:
            raise ZeroDivisionError
        return paid

    handle = await hold.submit(work)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="ZeroDivisionError"):
            await ended(handle)
        order.amount, broken = 6, False
        await hold.resume(handle)
        with pytest.raises(TaskFailed, match="JournalMismatch") as refused:
            await ended(handle)
        assert "other arguments than the code now passes" in str(refused.value)
        assert "Restore the old arguments and resume the task, or start it over with hold.retry" in str(refused.value)
        order.amount = 5
        await hold.resume(handle)
        assert await ended(handle) == "paid 5"
    assert world.amounts == [5]


async def test_the_code_cannot_handle_that_away(quick: Holdfast, world: World) -> None:
    order = Order()

    @quick.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        try:
            await ctx.step("pay", world.pay, order.amount, effect="once")
        except JournalMismatch:
            return "handled"
        order.amount = 6
        raise ConnectionError("once more")

    handle = await quick.submit(work)
    async with quick.worker():
        with pytest.raises(TaskFailed, match="JournalMismatch"):
            await ended(handle)
    assert world.amounts == [5]


async def test_other_arguments_than_were_armed_are_not_sent_either(app: Holdfast, world: World) -> None:
    """It is unknown which of the two happened; and the one that was armed stays a doubt that can be seen."""
    order = Order()

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, order.amount, effect="once", reconcile=world.was_paid)

    async with sandbox(app) as box:
        box.crash("pay", when="after_effect")
        handle = await app.submit(work)
        await stands(app, handle, S.ARMED)
        order.amount = 6
        with pytest.raises(TaskFailed, match="JournalMismatch"):
            await handle.result()
        doubt = await open_doubt(app, handle)
        assert doubt.arguments == [5]
    assert world.amounts == [5]


async def test_arguments_are_compared_as_data(quick: Holdfast) -> None:
    calls: list[Any] = []
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    passed: list[Any] = [{"a": 1, "b": [moment]}, {"b": [moment], "a": 1}]

    async def pay(what: Any) -> str:  # noqa: ANN401
        calls.append(what)
        return "paid"

    @quick.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        paid = await ctx.step("pay", pay, passed[ctx.attempt - 1], effect="once")
        if ctx.attempt == 1:
            raise ConnectionError("once more")
        return paid

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid"
    assert len(calls) == 1


async def test_the_name_of_the_function_does_not_matter(quick: Holdfast, world: World) -> None:
    async def pay_better(amount: int) -> str:
        raise AssertionError("it was paid")

    @quick.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        paid = await ctx.step("pay", world.pay if ctx.attempt == 1 else pay_better, 5, effect="once")
        if ctx.attempt == 1:
            raise ConnectionError("once more")
        return paid

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"


# Across rounds


def rejected_once(hold: Holdfast, world: World, order: Order, **options: Any) -> Any:  # noqa: ANN401
    """Define a task whose first round is rejected by its verifier; then the order has another amount."""

    @hold.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        await ctx.step("look", world.pay, f"look {ctx.feedback}")
        return await ctx.step("pay", world.pay, order.amount, effect="once", **options)

    @work.verify
    async def check(ctx: Context, result: str) -> bool | str:
        if ctx.feedback is None:
            return "once more"
        return True

    return work


async def test_what_was_done_once_replays_in_the_next_round(hold: Holdfast, world: World) -> None:
    """On every kind of store. Other steps run again, with the reason."""
    handle = await hold.submit(rejected_once(hold, world, Order()))
    async with hold.worker():
        assert await ended(handle) == "paid 5"
    assert world.amounts == ["look None", 5, "look once more"]
    assert (await handle.task()).round == 2
    steps = [step for step in await hold.store.steps(handle.id) if step.key == "pay"]
    assert [step.round for step in steps] == [1, 2]
    assert {step.effect_id for step in steps} == {(await effect_of(hold, handle)).effect_id}


async def test_what_was_done_once_replays_after_a_retry_by_hand(quick: Holdfast, world: World) -> None:
    rounds: list[int] = []

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        paid = await ctx.step("pay", world.pay, 5, effect="once")
        rounds.append(ctx.task.round)
        if ctx.task.round < 4:
            raise ZeroDivisionError
        return paid

    handle = await quick.submit(work)
    async with quick.worker():
        for _ in range(3):
            with pytest.raises(TaskFailed):
                await ended(handle)
            await quick.retry(handle)
        assert await ended(handle) == "paid 5"
    assert rounds == [1, 2, 3, 4]
    assert world.amounts == [5]


async def test_other_arguments_in_the_next_round_are_refused(quick: Holdfast, world: World) -> None:
    order = Order()
    work = rejected_once(quick, world, order)

    async def grow(amount: object) -> None:
        if amount == 5:
            order.amount = 6

    world.on_call = grow
    handle = await quick.submit(work)
    async with quick.worker():
        with pytest.raises(TaskFailed, match="JournalMismatch") as refused:
            await ended(handle)
    assert "Give the new call another name, or pass repeat=True to do it in each round" in str(refused.value)
    assert world.amounts == ["look None", 5, "look once more"]


@pytest.mark.parametrize("second", [5, 6])
async def test_repeat_does_it_again_in_each_round(quick: Holdfast, world: World, second: int) -> None:
    order = Order()
    work = rejected_once(quick, world, order, repeat=True)

    async def grow(amount: object) -> None:
        if amount == 5:
            order.amount = second

    world.on_call = grow
    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == f"paid {second}"
    assert world.amounts == ["look None", 5, "look once more", second]
    first, last = await quick.store.effects(task_id=handle.id)
    assert first.effect_id != last.effect_id
    assert {first.state, last.state} == {S.DONE}
    assert {first.round, last.round} == {1, 2}


async def test_repeat_does_not_apply_within_a_round(app: Holdfast, world: World) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", reconcile=world.was_paid, repeat=True)

    async with sandbox(app) as box:
        box.crash("pay", when="after_effect")
        assert await (await app.submit(work)).result() == "paid 5"
    assert len(world.calls) == 1


@pytest.mark.parametrize("brought_back", ["resume", "retry"])
async def test_what_was_given_up_stays_given_up(quick: Holdfast, world: World, brought_back: str) -> None:
    @quick.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)

    handle = await quick.submit(work)
    async with quick.worker():
        await quick.resolve(await open_doubt(quick, handle), "abandon", by="anna", note="too late")
        for again in (True, False):
            with pytest.raises(TaskFailed, match=r"was given up: abandon, by anna: too late") as failed:
                await ended(handle)
            assert failed.value.type_name == "holdfast.EffectGivenUp"
            if again:
                await getattr(quick, brought_back)(handle)
    assert (await effect_of(quick, handle)).state is S.ABANDONED
    assert len(world.calls) == 1
    assert (await handle.task()).attempts == 2, "what a person gave up is not tried again by itself"


@pytest.mark.parametrize("paid", [True, False])
async def test_a_doubt_of_an_earlier_round_is_cleared_up_first(app: Holdfast, world: World, paid: bool) -> None:
    """The first round left the call behind, and was rejected for it."""

    @app.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        if ctx.feedback is not None:
            return await ctx.step("pay", world.pay, 5, effect="once", reconcile=world.was_paid)
        hanging = asyncio.create_task(ctx.step("pay", world.hang, 5, effect="once"))
        await until(lambda: world.calls)
        hanging.cancel()
        return "left behind"

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        return result != "left behind"

    async with sandbox(app):
        handle = await app.submit(work)
        await stands(app, handle, S.IN_DOUBT)
        if not paid:
            world.happened.clear()
        assert await handle.result() == "paid 5"
        effect = await effect_of(app, handle)
        assert (await handle.task()).round == 2
    assert effect.state is S.DONE
    assert world.asked == [effect.effect_id]
    assert world.calls == [effect.effect_id] * (1 if paid else 2)
    assert world.happened == [effect.effect_id]


@pytest.mark.parametrize("brought_back", ["resume", "retry"])
async def test_a_doubt_of_a_failed_task_is_resolved_when_it_is_resumed(
    app: Holdfast, world: World, brought_back: str
) -> None:
    broken = True

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        function = world.hang if broken else world.pay
        paying = asyncio.create_task(ctx.step("pay", function, 5, effect="once", reconcile=world.was_paid))
        if broken:
            await until(lambda: world.calls)
            raise ZeroDivisionError
        return await paying

    async with sandbox(app):
        handle = await app.submit(work)
        with pytest.raises(TaskFailed, match="ZeroDivisionError"):
            await handle.result()
        assert (await effect_of(app, handle)).state is S.IN_DOUBT
        broken = False
        await getattr(app, brought_back)(handle)
        assert await handle.result() == "paid 5"
        effect = await effect_of(app, handle)
    assert effect.state is S.DONE
    assert world.calls == world.asked == [effect.effect_id]


async def test_a_handled_failure_replays_as_one(quick: Holdfast, world: World) -> None:
    @quick.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        world.raises = [ConnectionRefusedError("closed")]
        with pytest.raises(StepFailed, match="ConnectionRefusedError: closed"):
            await ctx.step("pay", world.pay, 5, effect="once")
        if ctx.attempt == 1:
            raise ConnectionError("once more")
        return "handled"

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "handled"
    assert len(world.calls) == 1


async def paid_in_two_rounds(kind: str, keys: tuple[str | None, str | None], *, is_late: bool) -> tuple[Any, list[str]]:
    """Pay a bill and, only in the second round, a tip: in the first one that is declined, or not wanted yet."""
    hold, done = Holdfast("memory://"), list[str]()

    @hold.task
    async def work(ctx: Context) -> list[str]:
        is_first = ctx.feedback is None

        async def pay_tip(*_: object) -> str:
            if is_first:
                raise ConnectionRefusedError
            done.append("tip")
            return "tip"

        async def pay_bill(*_: object) -> str:
            done.append("bill")
            return "bill"

        async def pay(function: Any, key: str | None) -> str:  # noqa: ANN401
            if kind == "transaction":
                return str(await ctx.transaction("pay", function, key=key))
            return str(await ctx.step("pay", function, key=key, effect="once"))

        said = []
        if not (is_late and is_first):
            with suppress(StepFailed):
                said.append(await pay(pay_tip, keys[0]))
        return [*said, await pay(pay_bill, keys[1])]

    @work.verify
    async def check(ctx: Context, result: list[str]) -> bool | str:
        return ctx.feedback is not None or "once more"

    async with hold, hold.worker():
        return await ended(await hold.submit(work)), done


async def test_without_arguments_one_of_the_same_name_is_not_taken_for_another() -> None:
    """What was not done in the first round, or was not there, is done in the second one; the rest is not done again."""
    for kind in ("once", "transaction"):
        for keys, is_late in (("tip", None), False), ((None, None), False), (("tip", None), True), (("a", "b"), True):
            found = await paid_in_two_rounds(kind, keys, is_late=is_late)
            assert found == (["tip", "bill"], ["bill", "tip"]), (kind, keys, is_late)
