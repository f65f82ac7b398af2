"""A full queue: ``hold.queue(..., max_pending=...)``."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, Handle, QueueFull, TaskState
from tests.engine.support import ended
from tests.semantics.scene import SOON, Scene


async def nothing(ctx: Context) -> str:
    return "done"


async def deploy(scene: Scene) -> None:
    await scene.hold.queue("default", max_pending=0)
    with pytest.raises(QueueFull):
        await scene.begun(nothing)


async def retry(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        if ctx.task.round == 1:
            await scene.hold.queue("default", max_pending=0)
        return "done"

    assert (await scene.by_retry(part)).result == "done"


async def new_round(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await scene.hold.queue("default", max_pending=0)
        return "done"

    assert (await scene.by_new_round(part)).result == "done"


async def fork(scene: Scene) -> None:
    handle = await scene.begun(nothing)
    await ended(handle)
    await scene.hold.queue("default", max_pending=0)
    assert await ended(await scene.hold.fork(handle)) == "done"


async def _parent(scene: Scene, **options: Any) -> Handle[Any]:  # noqa: ANN401 - those of ``begun``
    """A parent that waits for room in the queue of its child."""
    await scene.hold.queue("children", max_pending=0)

    async def part(ctx: Context) -> None:
        await ctx.submit("child", queue="children")

    return await scene.begun(part, name="parent", **options)


async def cancel(scene: Scene) -> None:
    handle = await _parent(scene)
    await scene.waits(handle)
    assert await scene.hold.cancel(handle) is TaskState.CANCELLED


async def deadline(scene: Scene) -> None:
    handle = await _parent(scene, deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)


async def prune(scene: Scene) -> None:
    await scene.hold.queue("default", max_pending=1)
    await ended(await scene.begun(nothing))
    await scene.prune()
    assert [(one.max_pending, one.pending) for one in await scene.hold.queues()] == [(1, 0)]
