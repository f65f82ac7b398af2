"""A plain step: ``ctx.step("name", function)``."""

import asyncio

import pytest

from holdfast import Conflict, Context, StepFailed, StepState, TaskState
from tests.engine.support import steps_of
from tests.semantics.scene import AT_ONCE, HOUR, Calls, Part, Scene


def work(calls: Calls) -> Part:
    """A step that counts its calls."""
    return lambda ctx: ctx.step("work", calls.do, "work")


def failing(calls: Calls, times: int) -> Part:
    """A step that fails so often, after one whose failure the code handles, and one that succeeds."""

    def fail() -> str:
        calls.append("fail")
        if calls.count("fail") <= times:
            raise ConnectionError("service down")
        return "up"

    def never() -> None:
        calls.append("never")
        raise ValueError("always")

    async def part(ctx: Context) -> str:
        try:
            await ctx.step("never", never)
        except StepFailed:
            await ctx.step("work", calls.do, "work")
        return await ctx.step("fail", fail)

    return part


async def automatic_retry(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.begun(failing(calls, 1), retry=AT_ONCE)
    await asyncio.wait_for(handle.result(), 60)
    assert calls == ["never", "work", "fail", "fail"]


async def resume(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.begun(failing(calls, 1))
    assert "service down" in await scene.failure(handle)
    await scene.hold.resume(handle)
    await asyncio.wait_for(handle.result(), 60)
    assert calls == ["never", "work", "fail", "fail"]


def numbered(ids: list[tuple[str, str | None]]) -> Part:
    """A step that notes its effect id, and the feedback of its round."""

    async def part(ctx: Context) -> None:
        async def work(effect_id: str) -> None:
            ids.append((effect_id, ctx.feedback))

        await ctx.step("work", work)

    return part


async def retry(scene: Scene) -> None:
    ids: list[tuple[str, str | None]] = []
    await scene.by_retry(numbered(ids))
    (first, none), (second, feedback) = ids
    assert first != second
    assert (none, feedback) == (None, "better")


async def new_round(scene: Scene) -> None:
    ids: list[tuple[str, str | None]] = []
    await scene.by_new_round(numbered(ids))
    (first, none), (second, feedback) = ids
    assert first != second
    assert (none, feedback) == (None, "better")


async def fork(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_fork(work(calls))
    assert (calls, run.result) == (["work"], "work, call 1")


def hanging(calls: Calls) -> Part:
    """A step that is completed, and one that never ends."""

    async def hang() -> None:
        calls.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            calls.append("stopped")

    async def part(ctx: Context) -> None:
        await ctx.step("work", calls.do, "work")
        await ctx.step("hang", hang)

    return part


async def cancel(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.by_cancel(hanging(calls), when=lambda: "begun" in calls)
    assert calls == ["work", "begun", "stopped"]
    assert await scene.state(handle, "work") is StepState.COMPLETED
    assert await scene.state(handle, "hang") in {None, StepState.RUNNING}


async def deadline(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.by_deadline(hanging(calls))
    assert calls == ["work", "begun", "stopped"]
    assert await scene.state(handle, "work") is StepState.COMPLETED
    assert (await scene.box.trace(handle)).states.count(TaskState.RUNNING) == 1, "no retry behind the deadline"


async def deadline_is_absolute(scene: Scene) -> None:
    """A task whose deadline has passed is brought back with a new one only; a fork has one of its own."""
    mended: list[bool] = []

    async def part(ctx: Context) -> str:
        return await ctx.step("work", str, "done") if mended else str(await ctx.wait_event("never"))

    handle = await scene.by_deadline(part)
    mended.append(True)
    with pytest.raises(Conflict, match="deadline"):
        await scene.hold.resume(handle)
    with pytest.raises(Conflict, match="deadline"):
        await scene.hold.retry(handle)
    assert await asyncio.wait_for((await scene.hold.fork(handle)).result(), 60) == "done"
    await scene.hold.resume(handle, deadline=HOUR)
    assert await asyncio.wait_for(handle.result(), 60) == "done"


async def suspension(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_suspension(work(calls))
    assert (calls, run.result) == (["work"], "work, call 1")


async def take_over(scene: Scene) -> None:
    ids: list[str] = []
    calls = Calls()

    async def under_way(effect_id: str) -> None:
        ids.append(effect_id)

    async def part(ctx: Context) -> None:
        await ctx.step("work", calls.do, "work")
        await ctx.step("under-way", under_way)

    scene.box.crash("under-way", when="after_effect")
    await asyncio.wait_for((await scene.begun(part)).result(), 60)
    assert calls == ["work"]
    first, second = ids
    assert first == second


async def deploy(scene: Scene) -> None:
    calls = Calls()

    async def new(ctx: Context) -> str:
        def other() -> str:
            return calls.do("another function")

        await ctx.step("added", calls.do, "added")
        return await ctx.step("work", other)

    run = await scene.by_deploy(work(calls), new)
    assert (calls, run.result) == (["work", "added"], "work, call 1")


async def prune(scene: Scene) -> None:
    run = await scene.by_prune(work(Calls()))
    assert await steps_of(scene.hold, run.handle) == {}
    waiting = await scene.begun(lambda ctx: ctx.wait_event("never"), name="open")
    await scene.waits(waiting)
    await scene.prune()
    assert (await waiting.task()).state is TaskState.WAITING
