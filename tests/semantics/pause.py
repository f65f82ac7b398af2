"""A pause: ``hold.pause(...)`` of a queue, of the tasks of a name, or of one task."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from __future__ import annotations

from typing import Any

from holdfast import Context, Handle, Task, TaskState
from tests.engine.support import ended, reaches, until
from tests.semantics.scene import AT_ONCE, DAY, HOUR, ONE_TRY, SOON, Scene


async def nothing(ctx: Context) -> str:
    return "done"


async def _is_left_alone(scene: Scene, handle: Handle[Any]) -> None:
    """The task is ready, and a worker that has claimed everything else has not claimed it."""
    beside = await scene.begun(nothing, name="beside")
    await ended(beside)
    task = await handle.task()
    assert (task.state, task.owner) == (TaskState.PENDING, None)


async def _goes_on(scene: Scene, handle: Handle[Any], subject: Handle[Any] | str) -> Any:  # noqa: ANN401
    assert await scene.hold.unpause(subject)
    return await ended(handle)


async def _failed(scene: Scene) -> tuple[Handle[Any], list[bool]]:
    broken = [True]

    async def part(ctx: Context) -> str:
        if broken:
            raise RuntimeError("no paper")
        return "done"

    handle = await scene.begun(part, retry=ONE_TRY)
    assert "no paper" in await scene.failure(handle)
    broken.clear()
    return handle, broken


async def automatic_retry(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        if ctx.attempt == 1:
            await scene.hold.pause("task:job")
            raise RuntimeError("the first attempt fails")
        return "done"

    handle = await scene.begun(part, retry=AT_ONCE)

    async def is_back() -> bool:
        task = await handle.task()
        return task.state is TaskState.PENDING and task.attempts == 1

    await until(is_back)
    await _is_left_alone(scene, handle)
    assert await _goes_on(scene, handle, "task:job") == "done"


async def resume(scene: Scene) -> None:
    handle, _ = await _failed(scene)
    await scene.hold.pause("task:job")
    await scene.hold.resume(handle)
    await _is_left_alone(scene, handle)
    assert await _goes_on(scene, handle, "task:job") == "done"


async def take_over(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await ctx.step("pause", scene.hold.pause, "task:job")
        await ctx.step("mark", lambda: None)
        return "done"

    scene.box.crash("mark", when="before_effect")
    handle = await scene.begun(part)

    async def is_back() -> bool:
        task = await handle.task()
        return task.state is TaskState.PENDING and task.deaths == 1

    await until(is_back)
    await _is_left_alone(scene, handle)
    assert await _goes_on(scene, handle, "task:job") == "done"


async def suspension(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await ctx.sleep(HOUR)
        return "done"

    handle = await scene.begun(part)
    await scene.waits(handle)
    await scene.hold.pause(handle)
    await reaches(handle, TaskState.PENDING)
    await _is_left_alone(scene, handle)
    assert await _goes_on(scene, handle, handle) == "done"


async def deploy(scene: Scene) -> None:
    await scene.hold.pause("task:job")
    old = await scene.begun(nothing)
    await _is_left_alone(scene, old)
    assert [pause.subject for pause in await scene.hold.store.pauses()] == ["task:job"]
    assert await _goes_on(scene, old, "task:job") == "done"


async def retry(scene: Scene) -> None:
    handle, _ = await _failed(scene)
    await scene.hold.pause("queue:default")
    await scene.hold.unpause("queue:default")
    await scene.hold.pause("task:job")
    await scene.hold.retry(handle)
    await _is_left_alone(scene, handle)
    assert await _goes_on(scene, handle, "task:job") == "done"
    assert (await handle.task()).round == 2


async def new_round(scene: Scene) -> None:
    @scene.hold.task
    async def job(ctx: Context) -> str:
        return "done"

    @job.verify
    async def second_round(ctx: Context, _: object) -> bool | str:
        if ctx.task.round == 1:
            await scene.hold.pause(ctx.task.id)
        return ctx.task.round == 2 or "better"

    handle = await scene.hold.submit(job)

    async def is_back() -> bool:
        task = await handle.task()
        return task.state is TaskState.PENDING and task.round == 2

    await until(is_back)
    await _is_left_alone(scene, handle)
    assert await _goes_on(scene, handle, handle) == "done"


async def fork(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        await ctx.step("mark", lambda: None)
        if ctx.task.id == origin[0]:
            await ctx.sleep(DAY)
        return "done"

    origin = [""]
    handle = await scene.begun(part)
    origin[0] = handle.id
    await scene.waits(handle)
    await scene.hold.pause(handle)
    assert await ended(await scene.hold.fork(handle, at="mark")) == "done"


async def cancel(scene: Scene) -> None:
    await scene.hold.pause("task:job")
    handle = await scene.begun(nothing)
    await scene.hold.pause(handle)
    assert await scene.hold.cancel(handle) is TaskState.CANCELLED


async def deadline(scene: Scene) -> None:
    await scene.hold.pause("task:job")
    handle = await scene.begun(nothing, deadline=SOON)
    await scene.hold.pause(handle)
    assert "DeadlineExceeded" in await scene.failure(handle)


async def prune(scene: Scene) -> None:
    await scene.hold.pause("queue:other")
    handle = await scene.begun(nothing, name="job")
    await ended(handle)
    unwanted: Task = await (await scene.hold.submit("job", queue="other")).task()
    await scene.hold.pause(unwanted.id)
    await scene.hold.cancel(unwanted.id)
    await scene.prune()
    assert await scene.hold.store.get(unwanted.id) is None
    assert [pause.subject for pause in await scene.hold.pauses()] == ["queue:other"]
