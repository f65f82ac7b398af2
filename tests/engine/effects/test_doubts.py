"""hold.doubts(): every effect with an unknown outcome, and nothing else."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Context, Decision, EffectState, Handle, Holdfast, Retry, TaskFailed, TaskState
from holdfast.testing import sandbox
from tests.engine.effects.support import World, effect_of, open_doubt, stands
from tests.engine.support import crash, crashing_worker, ended, reaches, until, vanish

S = EffectState
AFTER_THE_END = (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)


@dataclass
class Order:
    amount: int
    at: datetime


async def test_a_doubt_says_what_was_called_and_what_can_be_decided(hold: Holdfast, world: World) -> None:
    """On every kind of store."""

    async def pay(order: Order, to: list[str]) -> str:
        raise ConnectionResetError("the connection was lost")

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, Order(5, datetime(2026, 1, 1, tzinfo=UTC)), ["DE1"], effect="once", settle=0)

    handle = await hold.submit(work)
    async with hold.worker():
        await open_doubt(hold, handle)
        await reaches(handle, TaskState.WAITING)
    [doubt] = await hold.doubts()
    assert doubt.effect == await effect_of(hold, handle)
    assert doubt.task_name == "work"
    assert doubt.effect.task_id == handle.id
    assert doubt.question == (
        "Did step 'pay' of task 'work' happen? ConnectionResetError: the connection was lost; "
        "its step names no reconcile="
    )
    assert '"amount"' in str(doubt.arguments).replace("'", '"')
    assert "DE1" in str(doubt.arguments)
    assert doubt.decisions == (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)
    assert doubt.evidence == ()
    assert doubt.approval_id is not None
    assert (await hold.summary()).doubts == 1
    assert (await hold.summary()).open_approvals == 1


async def test_what_can_be_undone_can_be_decided_so(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0, compensate=lambda *_: None
        )

    handle = await quick.submit(work)
    async with quick.worker():
        doubt = await open_doubt(quick, handle)
    assert doubt.decisions == (*AFTER_THE_END, Decision.COMPENSATE)


async def test_a_call_under_way_is_not_a_doubt(hold: Holdfast, world: World) -> None:
    """On every kind of store: as long as its worker holds the task."""

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang_blocking, 5, effect="once")

    handle = await hold.submit(work)
    async with hold.worker():
        await until(lambda: world.calls)
        assert (await effect_of(hold, handle)).state is S.ARMED
        assert await hold.doubts() == await hold.doubts(handle) == []
        assert (await hold.summary()).doubts == 0
        world.release()
        assert await ended(handle) == "paid 5 late"
    assert await hold.doubts() == []


async def test_what_a_dead_worker_armed_is_one(hold: Holdfast, world: World) -> None:
    """On every kind of store: as soon as the store knows that it is dead, and before another worker takes over."""

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", timeout=60)

    handle = await hold.submit(work)
    worker = await hold.worker().__aenter__()
    await until(lambda: world.calls)
    dead = await vanish(worker)
    assert await hold.doubts() == [], "it is not known yet"
    await hold.store.retire(dead)
    [doubt] = await hold.doubts()
    assert doubt.effect.state is S.ARMED
    assert doubt.decisions == ()
    assert doubt.question == "Did step 'pay' of 'work' happen?"
    assert handle.id == doubt.effect.task_id


async def test_what_a_dead_worker_armed_in_a_task_that_then_ended_is_one(app: Holdfast, world: World) -> None:
    """The deadline passed before another worker took over: no worker ever reported anything about it."""

    @app.task(deadline=timedelta(seconds=60))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", timeout=600)

    async with sandbox(app, lease=300) as box:
        handle = await app.submit(work)
        await until(lambda: world.calls)
        box.crash_now()
        with pytest.raises(TaskFailed, match="deadline"):
            await handle.result()
        [doubt] = await app.doubts()
        assert doubt.decisions == AFTER_THE_END
        assert (await app.resolve(doubt, "happened", result="paid", by="anna")).state is S.DONE
        assert await app.doubts() == []


async def test_what_a_poisonous_task_armed_is_one(app: Holdfast, world: World) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", timeout=1, settle=1, reconcile=deadly)

    async def deadly(effect_id: str, amount: int) -> Any:  # noqa: ANN401
        box.crash_now()
        await asyncio.Event().wait()

    async with sandbox(app) as box:
        box.crash("pay", when="after_effect")
        handle = await app.submit(work)
        with pytest.raises(TaskFailed, match="Poison"):
            await handle.result()
        [doubt] = await app.doubts()
        assert doubt.effect.state is S.IN_DOUBT
        assert doubt.decisions == AFTER_THE_END


@pytest.mark.parametrize("limit", [1, 3])
async def test_calls_under_way_do_not_hide_the_doubts_behind_them(quick: Holdfast, world: World, limit: int) -> None:
    async def lose(number: int) -> str:
        raise ConnectionResetError

    @quick.task
    async def busy(ctx: Context) -> str:
        return await ctx.step("pay", world.hang_blocking, 5, effect="once")

    @quick.task
    async def doubtful(ctx: Context, number: int) -> str:
        return await ctx.step("pay", lose, number, effect="once", settle=0)

    async with quick.worker():
        before: list[Handle[str]] = [await quick.submit(busy) for _ in range(5)]
        handles = [await quick.submit(doubtful, number) for number in range(3)]
        after = [await quick.submit(busy) for _ in range(5)]
        await until(lambda: len(world.calls) == len(before) + len(after))
        for handle in handles:
            await open_doubt(quick, handle)
        assert len(await quick.doubts(limit=limit)) == limit
        listed = {doubt.effect.task_id for doubt in await quick.doubts()}
        assert listed == {handle.id for handle in handles}
        world.release()


async def test_those_of_one_task(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> None:
        await asyncio.gather(
            *(
                ctx.step("pay", world.pay_then_lose_the_answer, n, key=f"pay-{n}", effect="once", settle=0)
                for n in range(3)
            )
        )

    async with quick.worker():
        handles = [await quick.submit(work) for _ in range(2)]
        for handle in handles:
            await reaches(handle, TaskState.WAITING)
    for named in (handles[0], handles[0].id):
        doubts = await quick.doubts(named)
        assert sorted(str(doubt.arguments) for doubt in doubts) == ["[0]", "[1]", "[2]"]
        assert {doubt.effect.task_id for doubt in doubts} == {handles[0].id}
    assert len(await quick.doubts()) == 6
    assert (await quick.summary()).doubts == 6
    assert await quick.doubts("unknown") == []


async def test_several_doubts_of_one_task_are_decided_one_by_one(quick: Holdfast, world: World) -> None:
    """The task goes on when the last one is."""

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> list[str]:
        steps = (
            ctx.step("pay", world.pay_then_lose_the_answer, n, key=f"pay-{n}", effect="once", settle=0)
            for n in range(3)
        )
        return list(await asyncio.gather(*steps))

    handle = await quick.submit(work)
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
        for left in (2, 1, 0):
            doubt = min(await quick.doubts(handle), key=lambda doubt: str(doubt.arguments))
            await quick.resolve(doubt, "happened", result=f"result of {doubt.arguments}", by="anna")
            assert len(await quick.doubts(handle)) == left
            if left:
                await reaches(handle, TaskState.WAITING)
        assert await ended(handle) == ["result of [0]", "result of [1]", "result of [2]"]
    assert len(world.calls) == 3


async def test_the_summary_counts_them(hold: Holdfast, world: World) -> None:
    """On every kind of store: in doubt, and needing a human; not what is under way."""

    @hold.task
    async def human(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 1, effect="once", settle=0)

    @hold.task
    async def settling(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 2, effect="once", settle=3600)

    assert (await hold.summary()).doubts == 0
    async with crashing_worker(hold):
        first, second = await hold.submit(human), await hold.submit(settling)
        await stands(hold, first, S.NEEDS_HUMAN)
        await stands(hold, second, S.IN_DOUBT)
        await open_doubt(hold, first)
        assert (await hold.summary()).doubts == 2
        assert len(await hold.doubts()) == 2
        await hold.resolve(await effect_of(hold, first), "happened", by="anna")
        assert (await hold.summary()).doubts == 1


async def test_a_crash_between_the_doubt_and_the_question_is_made_good(app: Holdfast, world: World) -> None:
    """The worker that takes over asks the open question."""

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)

    async with sandbox(app) as box:
        box.crash_at_commit(3, durable=True)  # armed, in doubt, needs a human
        handle = await app.submit(work)
        await stands(app, handle, S.NEEDS_HUMAN)
        doubt = await open_doubt(app, handle)
        await app.resolve(doubt, "happened", result="paid", by="anna")
        assert await handle.result() == "paid"
    assert len(world.calls) == 1


async def test_the_worker_may_be_gone_when_a_person_decides(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)

    handle = await quick.submit(work)
    worker = await quick.worker().__aenter__()
    doubt = await open_doubt(quick, handle)
    await reaches(handle, TaskState.WAITING)
    await crash(quick, worker)
    await quick.resolve(doubt, "happened", result="paid", by="anna")
    async with quick.worker():
        assert await ended(handle) == "paid"
