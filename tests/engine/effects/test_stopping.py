"""A call that is stopped while it is under way: its outcome is unknown, and the doubt is listed."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Context,
    Decision,
    EffectState,
    Handle,
    Holdfast,
    NotHappened,
    Retry,
    StepState,
    TaskCancelled,
    TaskFailed,
    TaskState,
)
from holdfast.testing import sandbox
from tests.engine.effects.support import A_WHILE, World, effect_of, effects_by_key, open_doubt, stands
from tests.engine.support import ended, reaches, steps_of, until

S = EffectState
AFTER_THE_END = (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)


def hanging(world: World, blocking: bool) -> Callable[..., Any]:
    return world.hang_blocking if blocking else world.hang


async def is_a_doubt_after_the_end(hold: Holdfast, handle: Handle[Any]) -> None:
    """Look at the one effect of an ended task: it is listed, and can be decided."""
    [doubt] = await hold.doubts(handle)
    assert doubt.effect.state is S.IN_DOUBT
    assert doubt.effect.note == "stopped before its outcome was known"
    assert doubt.decisions == AFTER_THE_END
    assert doubt.approval_id is None
    assert (await hold.summary()).doubts == 1


# By the code itself


async def test_a_sibling_that_fails_stops_it(app: Holdfast, world: World) -> None:
    """The task is tried again; the call is not."""
    tries = 0

    async def fail() -> None:
        nonlocal tries
        tries += 1
        await until(lambda: world.calls)
        if tries == 1:
            raise ConnectionError("the sibling")

    @app.task(retry=Retry(max_attempts=2, initial=0.0))
    async def work(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            paying = group.create_task(ctx.step("pay", world.hang, 5, effect="once", reconcile=world.was_paid))
            group.create_task(ctx.step("fail", fail))
        return paying.result()

    async with sandbox(app):
        handle = await app.submit(work)
        assert await handle.result() == "paid 5"
        effect = (await effects_by_key(app, handle))["pay"]
    assert effect.state is S.DONE
    assert world.calls == world.asked == [effect.effect_id]
    assert tries == 2


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_code_that_goes_on_without_it_leaves_a_doubt(quick: Holdfast, world: World, blocking: bool) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        paying: asyncio.Task[str] = asyncio.create_task(ctx.step("pay", hanging(world, blocking), 5, effect="once"))
        await until(lambda: world.calls)
        try:
            async with asyncio.timeout(0.01):
                return await paying
        except TimeoutError:
            return "without it"

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "without it"
        await is_a_doubt_after_the_end(quick, handle)
        world.release()
    assert len(world.calls) == 1


async def test_code_that_waits_afterwards_leaves_a_doubt(app: Holdfast, world: World) -> None:
    """When the task is taken off its worker, nothing waits for the call any more."""

    @app.task
    async def work(ctx: Context) -> str:
        paying = asyncio.create_task(ctx.step("pay", world.hang, 5, effect="once"))
        await until(lambda: world.calls)
        paying.cancel()
        await ctx.sleep(3600)
        return "without it"

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.idle()
            assert (await handle.task()).state is TaskState.WAITING
            [doubt] = await app.doubts(handle)
            assert (doubt.effect.state, doubt.decisions) == (S.IN_DOUBT, ())
    assert len(world.calls) == 1


# By a person


async def test_a_cancel_stops_it(hold: Holdfast, world: World) -> None:
    """On every kind of store."""

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", reconcile=world.was_paid)

    handle = await hold.submit(work)
    async with hold.worker():
        await until(lambda: world.calls)
        await hold.cancel(handle, "changed my mind")
        with pytest.raises(TaskCancelled, match="changed my mind"):
            await ended(handle)
        await is_a_doubt_after_the_end(hold, handle)
    assert len(world.calls) == 1
    assert (await steps_of(hold, handle))["pay"].state is StepState.RUNNING


async def test_a_cancel_does_not_wait_for_a_blocking_call(app: Holdfast, world: World) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang_blocking, 5, effect="once", reconcile=world.was_paid)

    async with sandbox(app):
        handle = await app.submit(work)
        await until(lambda: world.calls)
        await app.cancel(handle)
        with pytest.raises(TaskCancelled):
            await handle.result()
        await is_a_doubt_after_the_end(app, handle)
        world.release()
    assert len(world.calls) == 1


async def test_an_async_call_learns_that_it_is_stopped(app: Holdfast, world: World) -> None:
    stops: list[BaseException] = []

    async def pay(amount: int, effect_id: str) -> str:
        try:
            return await world.hang(amount, effect_id)
        except BaseException as stopped:
            stops.append(stopped)
            raise

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once")

    async with sandbox(app):
        handle = await app.submit(work)
        await until(lambda: world.calls)
        await app.cancel(handle)
        with pytest.raises(TaskCancelled):
            await handle.result()
    assert [type(one) for one in stops] == [asyncio.CancelledError]


@pytest.mark.parametrize(
    ("last_word", "outcome"),
    [(lambda: "it was paid", "returned"), (lambda: 1 / 0, "raised")],
    ids=["returns", "raises"],
)
async def test_what_a_stopped_call_says_last_is_evidence(
    app: Holdfast, world: World, last_word: Callable[[], str], outcome: str
) -> None:
    async def pay(amount: int, effect_id: str) -> str:
        try:
            return await world.hang(amount, effect_id)
        except asyncio.CancelledError:
            return last_word()

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once")

    async with sandbox(app):
        handle = await app.submit(work)
        await until(lambda: world.calls)
        await app.cancel(handle)
        with pytest.raises(TaskCancelled):
            await handle.result()
        [doubt] = await app.doubts(handle)
        await until(lambda: app.store.evidence(handle.id, doubt.effect.effect_id))
        [doubt] = await app.doubts(handle)
    assert doubt.effect.state is S.IN_DOUBT
    [evidence] = doubt.evidence
    assert json.loads(evidence.body)["outcome"] == outcome


async def test_a_proof_does_not_count_from_a_call_that_is_being_stopped(app: Holdfast, world: World) -> None:
    """It answers the cancel, not the question."""

    async def pay(amount: int, effect_id: str) -> str:
        try:
            return await world.hang(amount, effect_id)
        except asyncio.CancelledError:
            raise NotHappened("or so it thinks") from None

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", retry=Retry(max_attempts=3, initial=0.0))

    async with sandbox(app):
        handle = await app.submit(work)
        await until(lambda: world.calls)
        await app.cancel(handle)
        with pytest.raises(TaskCancelled):
            await handle.result()
        await is_a_doubt_after_the_end(app, handle)
    assert len(world.calls) == 1


# By the worker


async def test_a_worker_that_stops_hands_it_over_as_doubt(hold: Holdfast, world: World) -> None:
    """On every kind of store."""

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.hang, 5, effect="once", reconcile=world.was_paid, timeout=A_WHILE, settle=0.05
        )

    handle = await hold.submit(work)
    async with hold.worker(grace=0):
        await until(lambda: world.calls)
    task = await handle.task()
    assert (task.state, task.deaths) == (TaskState.PENDING, 0)
    [doubt] = await hold.doubts(handle)
    assert (doubt.effect.state, doubt.decisions) == (S.IN_DOUBT, ())
    async with hold.worker():
        assert await ended(handle) == "paid 5"
    effect = await effect_of(hold, handle)
    assert effect.state is S.DONE
    assert world.calls == world.asked == [effect.effect_id]


async def test_a_worker_that_stops_lets_it_finish_if_there_is_time(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang_blocking, 5, effect="once")

    handle = await quick.submit(work)
    async with quick.worker(grace=10):
        await until(lambda: world.calls)
        asyncio.get_running_loop().call_later(0.05, world.release)
    assert await ended(handle) == "paid 5 late"
    assert (await effect_of(quick, handle)).state is S.DONE


# By time


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_the_deadline_of_the_task_stops_it(app: Holdfast, world: World, blocking: bool) -> None:
    @app.task(deadline=timedelta(seconds=60))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", hanging(world, blocking), 5, effect="once", reconcile=world.was_paid)

    async with sandbox(app) as box:
        handle = await app.submit(work)
        with pytest.raises(TaskFailed, match="DeadlineExceeded"):
            await handle.result()
        assert box.elapsed == timedelta(seconds=60)
        await is_a_doubt_after_the_end(app, handle)
        world.release()
    assert len(world.calls) == 1


async def test_the_deadline_of_the_task_may_come_while_it_is_being_cleared_up(app: Holdfast, world: World) -> None:
    """Off its worker: nothing can be written, and it is a doubt all the same."""

    @app.task(deadline=timedelta(seconds=60))
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=world.was_paid, settle=600
        )

    async with sandbox(app):
        handle = await app.submit(work)
        with pytest.raises(TaskFailed, match="deadline"):
            await handle.result()
        [doubt] = await app.doubts(handle)
        assert (doubt.effect.state, doubt.decisions) == (S.IN_DOUBT, AFTER_THE_END)
    assert world.asked == []


async def test_a_cancel_may_come_while_it_is_being_cleared_up(app: Holdfast, world: World) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=world.was_paid, settle=600
        )

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await stands(app, handle, S.IN_DOUBT)
            await reaches(handle, TaskState.WAITING)
            await app.cancel(handle)
            [doubt] = await app.doubts(handle)
        assert (doubt.effect.state, doubt.decisions) == (S.IN_DOUBT, AFTER_THE_END)
    assert world.asked == []


async def test_a_cancel_may_come_while_a_person_is_asked(quick: Holdfast, world: World) -> None:
    """Their question is closed with the task; the doubt is not."""

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)

    handle = await quick.submit(work)
    async with quick.worker():
        asked = await open_doubt(quick, handle)
        assert asked.approval_id is not None
        await quick.cancel(handle)
        await reaches(handle, TaskState.CANCELLED)
        [doubt] = await quick.doubts(handle)
        assert (doubt.effect.state, doubt.decisions) == (S.NEEDS_HUMAN, AFTER_THE_END)
        assert doubt.approval_id is None
        await quick.resolve(doubt, "happened", by="anna")
        assert await quick.doubts() == []
    assert len(world.calls) == 1
