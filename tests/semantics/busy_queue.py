"""A queue with all its places taken: ``hold.queue(..., concurrency=...)``."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from __future__ import annotations

import asyncio

from holdfast import Context, Handle, TaskState
from tests.engine.support import ended, reaches
from tests.semantics.scene import SOON, Scene


async def nothing(ctx: Context) -> str:
    return "done"


async def _busy(scene: Scene, go_on: asyncio.Event) -> Handle[None]:
    """A task that has the only place of its queue."""

    @scene.hold.task(name="busy")
    async def busy(ctx: Context) -> None:
        await go_on.wait()

    await scene.hold.queue("default", concurrency=1)
    handle = await scene.hold.submit(busy)
    await reaches(handle, TaskState.RUNNING)
    return handle


async def _second_waits(scene: Scene, handle: Handle[str], go_on: asyncio.Event) -> None:
    """While the place is taken the task stays in the queue; then it runs."""
    assert (await handle.task()).state is TaskState.PENDING
    go_on.set()
    assert await ended(handle) == "done"
    assert [(one.concurrency, one.working) for one in await scene.hold.queues()] == [(1, 0)]


async def automatic_retry(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        if ctx.attempt == 1:
            await scene.hold.queue("default", concurrency=1)
        return "done"

    assert (await scene.by_automatic_retry(part)).result == "done"


async def resume(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await scene.hold.queue("default", concurrency=1)
        return "done"

    assert (await scene.by_resume(part)).result == "done"


async def deploy(scene: Scene) -> None:
    go_on = asyncio.Event()
    await _busy(scene, go_on)
    await _second_waits(scene, await scene.begun(nothing), go_on)


async def retry(scene: Scene) -> None:
    go_on = asyncio.Event()

    async def part(ctx: Context) -> str:
        if ctx.task.round == 1:
            raise RuntimeError("the first round fails")
        return "done"

    handle = await scene.begun(part)
    await scene.failure(handle)
    await _busy(scene, go_on)
    await scene.hold.retry(handle)
    await _second_waits(scene, handle, go_on)


async def fork(scene: Scene) -> None:
    go_on = asyncio.Event()
    handle = await scene.begun(nothing)
    await ended(handle)
    await _busy(scene, go_on)
    await _second_waits(scene, await scene.hold.fork(handle), go_on)


async def cancel(scene: Scene) -> None:
    go_on = asyncio.Event()
    busy = await _busy(scene, go_on)
    handle = await scene.begun(nothing)
    await scene.hold.cancel(busy)
    assert await ended(handle) == "done"


async def deadline(scene: Scene) -> None:
    go_on = asyncio.Event()
    await _busy(scene, go_on)
    assert "DeadlineExceeded" in await scene.failure(await scene.begun(nothing, deadline=SOON))
    go_on.set()


async def prune(scene: Scene) -> None:
    await scene.hold.queue("default", concurrency=1)
    await ended(await scene.begun(nothing))
    await scene.prune()
    assert [(one.concurrency, one.working) for one in await scene.hold.queues()] == [(1, 0)]


async def new_round(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await scene.hold.queue("default", concurrency=1)
        return "done"

    assert (await scene.by_new_round(part)).result == "done"
    assert [one.working for one in await scene.hold.queues()] == [0]
