"""A limit of a task: ``hold.submit(task, limits=["tenant:acme"])``."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Context, Handle, LimitUse, NotFound, TaskState
from tests.engine.support import ended, reaches, until
from tests.semantics.scene import AT_ONCE, ONE_TRY, SOON, Part, Run, Scene

KEY = "tenant:acme"


async def nothing(ctx: Context) -> str:
    return "done"


async def _use(scene: Scene) -> LimitUse:
    [found] = [one for one in await scene.hold.limits() if one.key in {KEY, "tenant"}]
    return found


async def _limited(scene: Scene, part: Part, **options: Any) -> Handle[Any]:  # noqa: ANN401 - of a task
    """Submit a task with the only place of the limit, or one that has to wait for it."""
    await scene.hold.limit("tenant", concurrency=1, each=True)

    @scene.hold.task(**{"name": "job", **options}, limits=[KEY])
    async def job(ctx: Context) -> Any:  # noqa: ANN401
        return await part(ctx)

    return await scene.hold.submit(job)


async def _counting(scene: Scene, taken: list[int], ctx: Context) -> None:
    taken.append((await _use(scene)).taken)


async def _is_given_back(scene: Scene) -> None:
    async def is_free() -> bool:
        return (await _use(scene)).taken == 0

    await until(is_free)


async def automatic_retry(scene: Scene) -> None:
    taken: list[int] = []

    async def part(ctx: Context) -> str:
        await _counting(scene, taken, ctx)
        if ctx.attempt == 1:
            raise RuntimeError("the first attempt fails")
        return "done"

    assert await ended(await _limited(scene, part, retry=AT_ONCE)) == "done"
    assert taken == [1, 1]
    await _is_given_back(scene)


async def _failed(scene: Scene) -> tuple[Handle[Any], list[int]]:
    taken: list[int] = []

    async def part(ctx: Context) -> str:
        await _counting(scene, taken, ctx)
        if len(taken) == 1:
            raise RuntimeError("no paper")
        return "done"

    handle = await _limited(scene, part, retry=ONE_TRY)
    assert "no paper" in await scene.failure(handle)
    await _is_given_back(scene)
    return handle, taken


async def resume(scene: Scene) -> None:
    handle, taken = await _failed(scene)
    await scene.hold.resume(handle)
    assert await ended(handle) == "done"
    assert taken == [1, 1]


async def take_over(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await ctx.step("mark", lambda: None)
        return "done"

    scene.box.crash("mark", when="before_effect")
    handle = await _limited(scene, part)
    assert await ended(handle) == "done"
    assert (await scene.box.trace(handle)).deaths == 1
    await _is_given_back(scene)


async def suspension(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        if ctx.task.id == first[0]:
            await ctx.wait_event("go")
        return "done"

    first = [""]
    await scene.hold.pause("task:job")
    handle = await _limited(scene, part)
    first[0] = handle.id
    await scene.hold.unpause("task:job")
    await scene.waits(handle)
    await _is_given_back(scene)
    assert await ended(await scene.hold.submit("job")) == "done"
    await scene.hold.emit("go")
    assert await ended(handle) == "done"


async def deploy(scene: Scene) -> None:
    await scene.hold.limit("tenant", concurrency=1, each=True)

    @scene.hold.task
    async def job(ctx: Context) -> str:
        return "done"

    handle = await scene.hold.submit(job, limits=[KEY])
    job.limits = ()  # the code that names it is gone
    assert await ended(handle) == "done"
    assert (await handle.task()).limits == (KEY,)
    assert (await (await scene.hold.submit(job)).task()).limits == ()


async def deploy_of_an_unknown_limit(scene: Scene) -> None:
    @scene.hold.task(limits=["never-set"])
    async def job(ctx: Context) -> str:
        return "done"

    try:
        await scene.hold.submit(job)
    except NotFound as refused:
        assert "hold.limit('never-set'" in str(refused)  # noqa: PT017 - the other branch is the failure
    else:
        raise AssertionError("it was stored")


async def retry(scene: Scene) -> None:
    handle, taken = await _failed(scene)
    await scene.hold.retry(handle)
    assert await ended(handle) == "done"
    assert taken == [1, 1]
    assert (await handle.task()).round == 2


async def new_round(scene: Scene) -> None:
    taken: list[int] = []
    await scene.hold.limit("tenant", concurrency=1, each=True)

    @scene.hold.task(limits=[KEY])
    async def job(ctx: Context) -> str:
        await _counting(scene, taken, ctx)
        return "done"

    @job.verify
    async def second_round(ctx: Context, _: object) -> bool | str:
        await _counting(scene, taken, ctx)
        return ctx.task.round == 2 or "better"

    assert await ended(await scene.hold.submit(job)) == "done"
    assert taken == [1, 1, 1, 1]


async def fork(scene: Scene) -> None:
    handle = await _limited(scene, nothing)
    await ended(handle)
    run = Run(await scene.hold.fork(handle), None)
    assert (await run.handle.task()).limits == (KEY,)
    assert await ended(run.handle) == "done"


async def _in_line(scene: Scene, **options: Any) -> Handle[Any]:  # noqa: ANN401 - of the task in line
    """Submit a task that waits for the only place, which another one keeps."""
    await scene.hold.limit("tenant", concurrency=1, each=True)

    async def hold_it(ctx: Context) -> None:
        await asyncio.Event().wait()

    first = await _limited(scene, hold_it, name="first")
    await reaches(first, TaskState.RUNNING)
    second = await _limited(scene, nothing, **options)

    async def waits() -> bool:
        return (await _use(scene)).waiting == 1

    await until(waits)
    return second


async def cancel(scene: Scene) -> None:
    handle = await _in_line(scene)
    assert await scene.hold.cancel(handle) is TaskState.CANCELLED
    assert (await _use(scene)).waiting == 0


async def deadline(scene: Scene) -> None:
    handle = await _in_line(scene, deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    assert (await _use(scene)).waiting == 0


async def prune(scene: Scene) -> None:
    handle = await _limited(scene, nothing)
    await ended(handle)
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
    assert [one.limit.concurrency for one in await scene.hold.limits()] == [1]
