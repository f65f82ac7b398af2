"""How long a queue keeps ended tasks: ``hold.queue(..., retention=...)``."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast import Context, Handle, TaskState
from tests.engine.support import ended, until
from tests.semantics.scene import DAY, SOON, Scene

KEPT = {"completed": DAY, "failed": DAY, "cancelled": DAY}
AT_ONCE = dict.fromkeys(KEPT, timedelta(0))


async def nothing(ctx: Context) -> str:
    return "done"


async def _goes(scene: Scene, handle: Handle[Any]) -> None:
    """The task ends, and a sweep deletes it."""
    await ended(handle)
    await _is_deleted(scene, handle)


async def _is_deleted(scene: Scene, handle: Handle[Any]) -> None:
    await scene.box.advance(2 * DAY)

    async def is_gone() -> bool:
        await scene.hold.store.sweep()
        return await scene.hold.store.get(handle.id) is None

    await until(is_gone, patience=5)


async def _keep_nothing(scene: Scene) -> None:
    await scene.hold.queue("default", retention=AT_ONCE)


async def automatic_retry(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await _keep_nothing(scene)
        return "done"

    await _is_deleted(scene, (await scene.by_automatic_retry(part)).handle)


async def take_over(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await _keep_nothing(scene)
        return "done"

    await _is_deleted(scene, (await scene.by_take_over(part)).handle)


async def suspension(scene: Scene) -> None:
    await scene.hold.queue("default", retention=KEPT)

    async def part(ctx: Context) -> str:
        await ctx.sleep(3 * DAY)
        return "done"

    await _goes(scene, await scene.begun(part))


async def resume(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        return "done"

    await scene.hold.queue("default", retention=KEPT)
    run = await scene.by_resume(part)
    assert await scene.hold.store.get(run.handle.id) is not None
    await _keep_nothing(scene)
    await _is_deleted(scene, run.handle)


async def deploy(scene: Scene) -> None:
    await scene.hold.queue("default", retention=KEPT)

    async def part(ctx: Context) -> str:
        return "done"

    await scene.by_deploy(part, part)
    assert [queue.retention for queue in await scene.hold.queues()] == [KEPT]


async def retry(scene: Scene) -> None:
    await scene.hold.queue("default", retention=KEPT)
    run = await scene.by_retry(nothing)
    assert await scene.hold.store.get(run.handle.id) is not None


async def new_round(scene: Scene) -> None:
    await scene.hold.queue("default", retention=KEPT)
    run = await scene.by_new_round(nothing)
    assert await scene.hold.store.get(run.handle.id) is not None


async def fork(scene: Scene) -> None:
    handle = await scene.begun(nothing)
    await ended(handle)
    copy = await scene.hold.fork(handle)
    assert await ended(copy) == "done"
    await _keep_nothing(scene)
    await _is_deleted(scene, handle)
    await _is_deleted(scene, copy)


async def cancel(scene: Scene) -> None:
    async def part(ctx: Context) -> None:
        await ctx.sleep(3 * DAY)

    handle = await scene.begun(part)
    await scene.waits(handle)
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    await scene.hold.queue("default", retention={"cancelled": timedelta(0)})
    await _is_deleted(scene, handle)


async def deadline(scene: Scene) -> None:
    async def part(ctx: Context) -> None:
        await ctx.sleep(3 * DAY)

    handle = await scene.begun(part, deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    assert (await handle.task()).state is TaskState.FAILED
    await scene.hold.queue("default", retention={"failed": timedelta(0)})
    await _is_deleted(scene, handle)


async def prune(scene: Scene) -> None:
    await scene.hold.queue("default", retention={"completed": 30 * DAY})
    handle = await scene.begun(nothing)
    await ended(handle)
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
    assert [queue.retention for queue in await scene.hold.queues()] == [{"completed": 30 * DAY}]
