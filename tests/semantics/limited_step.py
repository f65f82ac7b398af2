"""A limit of a step: ``ctx.step("ask", ask, limits=["openai"])``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from holdfast import Context, Handle, LimitUse, TaskState
from tests.engine.support import ended, reaches, until
from tests.semantics.scene import AT_ONCE, DAY, SOON, Calls, Part, Scene

LIMITS = ["openai"]


async def _use(scene: Scene) -> LimitUse:
    [found] = await scene.hold.limits("openai")
    return found


async def _calls_are(scene: Scene, count: int) -> None:
    """Check how many permits were given: the limit counts each of them for a day."""
    assert (await _use(scene)).calls == count


async def _settled(scene: Scene) -> None:
    async def is_free() -> bool:
        use = await _use(scene)
        return use.taken == use.waiting == 0

    await until(is_free)


async def _part(scene: Scene, **options: Any) -> tuple[Part, Calls]:  # noqa: ANN401 - of the step
    await scene.hold.limit("openai", concurrency=1, rate=100, per=100 * DAY)
    calls = Calls()

    async def part(ctx: Context) -> str:
        return await ctx.step("ask", calls.do, "ask", limits=LIMITS, **options)

    return part, calls


async def automatic_retry(scene: Scene) -> None:
    part, calls = await _part(scene)
    assert (await scene.by_automatic_retry(part)).result == "ask, call 1"
    assert calls == ["ask"]
    await _calls_are(scene, 1)


async def automatic_retry_of_a_failed_try(scene: Scene) -> None:
    await scene.hold.limit("openai", concurrency=1, rate=100, per=100 * DAY)
    taken: list[int] = []

    async def ask() -> str:
        taken.append((await _use(scene)).taken)
        if len(taken) == 1:
            raise RuntimeError("no answer")
        return "answer"

    async def part(ctx: Context) -> str:
        return await ctx.step("ask", ask, limits=LIMITS, retry=AT_ONCE)

    assert await ended(await scene.begun(part)) == "answer"
    assert taken == [1, 1]
    await _calls_are(scene, 2)
    await _settled(scene)


async def resume(scene: Scene) -> None:
    part, calls = await _part(scene)
    await scene.by_resume(part)
    assert calls == ["ask"]
    await _calls_are(scene, 1)


async def take_over(scene: Scene) -> None:
    part, calls = await _part(scene)
    await scene.by_take_over(part)
    assert calls == ["ask"]
    await _calls_are(scene, 1)


async def take_over_of_a_call_under_way(scene: Scene) -> None:
    part, calls = await _part(scene, timeout=timedelta(seconds=20))
    scene.box.crash("ask", when="after_effect")
    began = await scene.hold.store.now()
    handle = await scene.begun(part)
    assert await ended(handle) == "ask, call 2"
    assert calls == ["ask", "ask"]
    # The permit of the dead worker's call comes back when that call is over for certain: timeout and time to settle.
    assert await scene.hold.store.now() - began >= timedelta(seconds=25)
    await _calls_are(scene, 2)


async def suspension(scene: Scene) -> None:
    part, calls = await _part(scene)
    await scene.by_suspension(part)
    assert calls == ["ask"]
    await _calls_are(scene, 1)


async def suspension_by_the_limit(scene: Scene) -> None:
    handle, go_on = await _in_line(scene)
    assert (await handle.task()).state is TaskState.RUNNING
    assert await scene.state(handle, "ask") is None
    go_on()
    assert await ended(handle) == "asked"
    assert TaskState.WAITING not in (await scene.box.trace(handle)).states


async def deploy(scene: Scene) -> None:
    part, calls = await _part(scene)
    await scene.hold.limit("other", concurrency=1)

    async def new(ctx: Context) -> str:
        await ctx.step("ask", calls.do, "ask", limits=["other"])
        return await ctx.step("more", calls.do, "more", limits=["other"])

    await scene.by_deploy(part, new)
    assert calls == ["ask", "more"]
    await _calls_are(scene, 1)


async def retry(scene: Scene) -> None:
    part, calls = await _part(scene)
    await scene.by_retry(part)
    assert calls == ["ask", "ask"]
    await _calls_are(scene, 2)


async def new_round(scene: Scene) -> None:
    part, calls = await _part(scene)
    await scene.by_new_round(part)
    assert calls == ["ask", "ask"]
    await _calls_are(scene, 2)


async def fork(scene: Scene) -> None:
    part, calls = await _part(scene)
    await scene.by_fork(part)
    assert calls == ["ask"]
    await _calls_are(scene, 1)


async def _in_line(scene: Scene, **options: Any) -> tuple[Handle[Any], Callable[[], None]]:  # noqa: ANN401 - of the task
    """Begin a task whose step waits for the only permit, and return what lets the step that has it end."""
    await scene.hold.limit("openai", concurrency=1, rate=100, per=100 * DAY)
    free = asyncio.Event()

    async def keep(ctx: Context) -> None:
        await ctx.step("keep", free.wait, limits=LIMITS, timeout=DAY)

    async def ask() -> str:
        return "asked"

    async def part(ctx: Context) -> str:
        return await ctx.step("ask", ask, limits=LIMITS)

    first = await scene.begun(keep, name="first")
    await reaches(first, TaskState.RUNNING)

    async def has_permit() -> bool:
        return (await _use(scene)).taken == 1

    await until(has_permit)
    second = await scene.begun(part, **options)

    async def waits() -> bool:
        return (await _use(scene)).waiting == 1

    await until(waits)
    return second, free.set


async def cancel(scene: Scene) -> None:
    handle, go_on = await _in_line(scene)
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    go_on()
    await _settled(scene)


async def deadline(scene: Scene) -> None:
    handle, go_on = await _in_line(scene, deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    go_on()
    await _settled(scene)


async def prune(scene: Scene) -> None:
    part, _ = await _part(scene)
    await scene.by_prune(part)
    await _settled(scene)
    await _calls_are(scene, 1)
