"""A queue whose tasks take turns: ``hold.queue(..., fair_by=...)``."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from __future__ import annotations

from holdfast import Context
from tests.engine.support import ended
from tests.semantics.scene import SOON, Scene


async def nothing(ctx: Context) -> str:
    return "done"


async def _is_fair(scene: Scene) -> None:
    await scene.hold.queue("default", fair_by="tenant")


async def _stays_fair(scene: Scene) -> None:
    assert [queue.fair_by for queue in await scene.hold.queues()] == ["tenant"]


async def deploy(scene: Scene) -> None:
    await _is_fair(scene)
    await scene.by_deploy(nothing, nothing)
    await _stays_fair(scene)


async def retry(scene: Scene) -> None:
    await _is_fair(scene)
    assert (await scene.by_retry(nothing)).result == "done"


async def fork(scene: Scene) -> None:
    await _is_fair(scene)
    definition = scene.hold.task(name="job")(nothing)
    handle = await scene.hold.submit(definition, labels={"tenant": "acme"})
    await ended(handle)
    copy = await scene.hold.fork(handle)
    assert await ended(copy) == "done"
    assert (await copy.task()).labels == {"tenant": "acme"}


async def deadline(scene: Scene) -> None:
    await _is_fair(scene)
    await scene.hold.pause("queue:default", by="ann")
    assert "DeadlineExceeded" in await scene.failure(await scene.begun(nothing, deadline=SOON))


async def prune(scene: Scene) -> None:
    await _is_fair(scene)
    await ended(await scene.begun(nothing))
    await scene.prune()
    await _stays_fair(scene)
