"""A debounced task: ``hold.submit(..., key=, debounce=)``."""

from __future__ import annotations

from typing import Any

from holdfast import Context, Handle, TaskDefinition
from tests.engine.support import ended
from tests.semantics.scene import DAY, HOUR, ONE_TRY, SOON, Scene


def _job(scene: Scene, broken: list[bool] | None = None) -> TaskDefinition[[str], str]:
    """Define a task that returns its argument, and fails first as long as ``broken`` says so."""

    @scene.hold.task(name="job", retry=ONE_TRY)
    async def job(ctx: Context, text: str) -> str:
        if broken and text == "first":
            raise RuntimeError("no paper")
        return f"{text}, round {ctx.task.round}"

    return job


async def _submit(scene: Scene, task: Any, text: str, **options: Any) -> Handle[Any]:  # noqa: ANN401
    handle: Handle[Any] = await scene.hold.submit(task, text, key="k", debounce=1, **options)
    return handle


async def _follower_of_a_failed_one(scene: Scene, broken: list[bool]) -> Handle[Any]:
    """A task that has failed, and whose key a later submission has taken over."""
    job = _job(scene, broken)
    first = await _submit(scene, job, "first")
    assert "no paper" in await scene.failure(first)
    second = await _submit(scene, job, "second")
    assert second.id != first.id
    assert await ended(second) == "second, round 1"
    assert [(await handle.task()).key for handle in (first, second)] == [None, "k"]
    broken.clear()
    return first


async def resume(scene: Scene) -> None:
    first = await _follower_of_a_failed_one(scene, [True])
    await scene.hold.resume(first)
    assert await ended(first) == "first, round 1"


async def retry(scene: Scene) -> None:
    first = await _follower_of_a_failed_one(scene, [True])
    await scene.hold.retry(first, feedback="better")
    assert await ended(first) == "first, round 2"


async def suspension(scene: Scene) -> None:
    @scene.hold.task(name="job")
    async def job(ctx: Context, text: str) -> str:
        await ctx.wait_event("go")
        return text

    first = await _submit(scene, job, "first")
    await scene.waits(first)
    second = await _submit(scene, job, "second")
    assert second.id != first.id
    await scene.waits(second)
    await scene.hold.emit("go", None)
    assert [await ended(first), await ended(second)] == ["first", "second"]


async def deploy(scene: Scene) -> None:
    first = await _submit(scene, "job", "first", queue="default")
    with scene.box.frozen():
        second = await _submit(scene, "job", "second", queue="default")
    assert first.id == second.id
    assert await ended(await _submit(scene, _job(scene), "third")) == "third, round 1"


async def new_round(scene: Scene) -> None:
    followers: list[Handle[Any]] = []

    @scene.hold.task(name="job")
    async def job(ctx: Context, text: str) -> str:
        if ctx.task.round == 1 and text == "first":
            followers.append(await _submit(scene, "job", "second"))
        return text

    @job.verify
    async def second_round(ctx: Context, _: object) -> bool | str:
        return ctx.task.round == 2 or "better"

    first = await _submit(scene, job, "first")
    assert await ended(first) == "first"
    assert [await ended(one) for one in followers] == ["second"]


async def fork(scene: Scene) -> None:
    first = await _submit(scene, _job(scene), "first")
    await ended(first)
    copy = await scene.hold.fork(first)
    assert (await copy.task()).key is None
    assert await ended(copy) == await ended(first)


async def deadline(scene: Scene) -> None:
    first = await _submit(scene, "job", "first", queue="default", deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(first)
    second = await _submit(scene, _job(scene), "second")
    assert second.id != first.id
    assert await ended(second) == "second, round 1"


async def prune(scene: Scene) -> None:
    job = _job(scene)
    handles = [await _submit(scene, job, text) for text in ("first",)]
    await ended(handles[0])
    handles.append(await _submit(scene, job, "second"))
    await ended(handles[1])
    waiting = await scene.hold.submit(job, "third", key="k", debounce=10 * DAY + HOUR)
    await scene.prune()
    assert [await scene.hold.store.get(handle.id) for handle in handles] == [None, None]
    assert await scene.hold.store.get(waiting.id) is not None
