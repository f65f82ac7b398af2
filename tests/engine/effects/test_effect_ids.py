"""The effect id: one for each effect of a step, on every worker and in every try."""

import asyncio
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    Context,
    Handle,
    Holdfast,
    HoldfastError,
    NotHappened,
    Retry,
    StepFailed,
    TaskFailed,
    current_effect_id,
)
from holdfast.testing import sandbox
from tests.engine.effects.support import World, effects_by_key
from tests.engine.support import crashing_worker, ended, until

EFFECTS = ["idempotent", "once"]


# The same


@pytest.mark.parametrize("effect", EFFECTS)
async def test_every_try_of_a_step_has_the_same(quick: Holdfast, world: World, effect: str) -> None:
    world.raises = [NotHappened("not yet"), ConnectionRefusedError(), NotHappened("not yet")]

    @quick.task(retry=Retry(max_attempts=2, initial=0.0))
    async def work(ctx: Context) -> str:
        """Two tries in each of two attempts."""
        return await ctx.step("pay", world.pay, 5, effect=effect, retry=Retry(max_attempts=2, initial=0.0))

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert len(world.calls) == 4
    assert len(set(world.calls)) == 1


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_resumed_task_has_the_same(quick: Holdfast, world: World, effect: str) -> None:
    world.raises = [NotHappened("not yet")]

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect=effect)

    handle = await quick.submit(work)
    async with quick.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        await quick.resume(handle)
        assert await ended(handle) == "paid 5"
    assert len(world.calls) == 2
    assert len(set(world.calls)) == 1


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("when", ["before_effect", "after_effect"])
async def test_a_worker_that_takes_over_has_the_same(app: Holdfast, world: World, effect: str, when: Any) -> None:  # noqa: ANN401
    @app.task
    async def work(ctx: Context) -> str:
        reconcile: dict[str, Any] = {"reconcile": world.was_paid} if effect == "once" else {}
        return await ctx.step("pay", world.pay, 5, effect=effect, **reconcile)

    async with sandbox(app) as box:
        box.crash("pay", when=when)
        assert await (await app.submit(work)).result() == "paid 5"
    assert len({*world.calls, *world.asked}) == 1
    assert len(world.calls) == (2 if effect == "idempotent" and when == "after_effect" else 1)
    early = 1 if when == "before_effect" else 0  # said "absent", which decided nothing
    assert len(world.asked) == (1 + early if effect == "once" else 0)


async def test_another_process_has_the_same(hold: Holdfast, url: str) -> None:
    """On every kind of store: the worker that takes over belongs to another Holdfast, with code of its own."""
    seen: list[str] = []
    gone = asyncio.Event()

    def define(hold: Holdfast) -> None:
        async def pay(effect_id: str) -> str:
            seen.append(effect_id)
            if len(seen) == 1:
                await gone.wait()
            return effect_id

        @hold.task
        async def work(ctx: Context) -> str:
            return await ctx.step("pay", pay)

    define(hold)
    handle: Handle[str] = await hold.submit("work")
    if url.startswith(("memory:", "json:")):  # one process at a time
        async with crashing_worker(hold):
            await until(lambda: seen)
        async with hold.worker():
            result = await ended(handle)
    else:
        async with Holdfast(url) as other:
            define(other)
            async with crashing_worker(hold):
                await until(lambda: seen)
            async with other.worker():
                result = await ended(handle)
    assert seen == [result, result]
    gone.set()


# Others


@pytest.mark.parametrize("effect", EFFECTS)
async def test_every_step_of_every_task_has_its_own(quick: Holdfast, world: World, effect: str) -> None:
    @quick.task
    async def work(ctx: Context) -> None:
        for _ in range(3):
            await ctx.step("pay", world.pay, 5, effect=effect)

    async with quick.worker():
        for _ in range(3):
            await ended(await quick.submit(work))
    assert len(set(world.calls)) == len(world.calls) == 9
    assert {uuid.UUID(effect_id).version for effect_id in world.calls} == {5}


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_new_round_has_its_own(quick: Holdfast, world: World, effect: str) -> None:
    world.raises = [NotHappened("not yet")]

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect=effect)

    handle = await quick.submit(work)
    async with quick.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        await quick.retry(handle)
        assert await ended(handle) == "paid 5"
    assert len(set(world.calls)) == 2


@pytest.mark.parametrize("effect", EFFECTS)
async def test_what_is_done_again_after_it_was_undone_is_another_effect(
    quick: Holdfast, world: World, effect: str
) -> None:
    """In the same round; and each try of it has the new one."""
    undone: list[str] = []
    broken = True

    def give_back(result: str, amount: int) -> None:
        undone.append(f"{result} of {amount}")

    @quick.task(retry=Retry(max_attempts=9, initial=0.0, give_up_on=(ZeroDivisionError,)))
    async def work(ctx: Context) -> str:
        paid = await ctx.step("pay", world.pay, 5, effect=effect, compensate=give_back)
        if broken:
            raise ZeroDivisionError
        return paid

    handle = await quick.submit(work)
    async with quick.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        assert undone == ["paid 5 of 5"]
        broken = False
        world.raises = [NotHappened("not yet"), NotHappened("not yet")]
        await quick.resume(handle)
        assert await ended(handle) == "paid 5"
    first, *later = world.calls
    assert len(later) == 3
    assert set(later) != {first}
    assert len(set(later)) == 1


# How a function learns it


def helper() -> str:
    return current_effect_id()


async def async_helper() -> str:
    await asyncio.sleep(0)
    return helper()


async def by_parameter(effect_id: str) -> str:
    return effect_id


def by_parameter_blocking(effect_id: str) -> str:
    return effect_id


async def by_parameter_only(*, effect_id: str) -> str:
    return effect_id


async def with_default(effect_id: str = "") -> str:
    return effect_id


class Tool:
    """A callable object."""

    async def __call__(self, effect_id: str) -> str:
        return effect_id

    async def method(self, effect_id: str) -> str:
        return effect_id


async def nested() -> str:
    return await async_helper()


async def in_a_task_of_its_own() -> str:
    return await asyncio.create_task(async_helper())


async def in_a_thread_of_its_own() -> str:
    return await asyncio.to_thread(helper)


def blocking() -> str:
    assert threading.current_thread() is not threading.main_thread()
    return helper()


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(
    "function",
    [
        by_parameter,
        by_parameter_blocking,
        by_parameter_only,
        with_default,
        Tool(),
        Tool().method,
        helper,
        async_helper,
        nested,
        in_a_task_of_its_own,
        in_a_thread_of_its_own,
        blocking,
    ],
    ids=lambda function: getattr(function, "__qualname__", "Tool()"),
)
async def test_a_function_learns_it(quick: Holdfast, effect: str, function: Callable[[], Any]) -> None:
    @quick.task
    async def work(ctx: Context) -> list[str]:
        return [
            await ctx.step("ask", function, effect=effect),
            await ctx.step("ask-once-more", function, effect="once"),
        ]

    handle = await quick.submit(work)
    async with quick.worker():
        first, second = await ended(handle)
    assert uuid.UUID(first) != uuid.UUID(second)
    effects = await effects_by_key(quick, handle)
    assert effects["ask-once-more"].effect_id == second
    if effect == "once":
        assert effects["ask"].effect_id == first


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("together", ["gather", "group"])
async def test_steps_at_the_same_time_each_see_their_own(quick: Holdfast, effect: str, together: str) -> None:
    """All of them are under way when the first of them asks."""
    arrived: dict[str, str] = {}
    everyone = threading.Barrier(20)
    all_there = asyncio.Event()

    async def ask(name: str, effect_id: str) -> str:
        arrived[name] = effect_id
        if len(arrived) == 20:
            all_there.set()
        await all_there.wait()
        assert current_effect_id() == effect_id
        await asyncio.sleep(0)
        return await async_helper()

    def ask_blocking(name: str, effect_id: str) -> str:
        arrived[name] = effect_id
        everyone.wait(60)
        return helper()

    @quick.task
    async def work(ctx: Context, blocking: bool) -> dict[str, str]:
        arrived.clear()
        function: Callable[..., Any] = ask_blocking if blocking else ask
        steps = {name: ctx.step("ask", function, name, key=name, effect=effect) for name in map(str, range(20))}
        if together == "gather":
            return dict(zip(steps, await asyncio.gather(*steps.values()), strict=True))
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(step) for name, step in steps.items()}
        return {name: task.result() for name, task in tasks.items()}

    async with quick.worker():
        for blocking in (False, True):
            assert await ended(await quick.submit(work, blocking)) == arrived
            assert len(set(arrived.values())) == 20


async def test_between_the_steps_there_is_no_effect_id(quick: Holdfast, world: World) -> None:
    def refused() -> None:
        with pytest.raises(HoldfastError, match="no step runs here"):
            current_effect_id()

    @quick.task
    async def work(ctx: Context) -> str:
        refused()
        await ctx.step("pay", world.pay, 5)
        refused()
        world.raises = [ValueError()]
        with pytest.raises(StepFailed):
            await ctx.step("fail", world.pay, 5)
        refused()
        await ctx.step("once", world.pay, 5, effect="once")
        refused()
        return "none"

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "none"
    refused()
