"""A step inside a step: its key stands below that of the step around it."""

import asyncio

import pytest

from holdfast import Conflict, Context, StepState, TaskState
from holdfast.engine.attempt.scope import INSIDE
from holdfast.model.worker import QUIET_FOR
from tests.engine.support import ended, steps_of
from tests.semantics.scene import AT_ONCE, SOON, Calls, Part, Scene

INNER = f"outer{INSIDE}inner"


def nested(calls: Calls, *, failures: int = 0, name: str = "outer") -> Part:
    """A plain and a ``once`` step inside a step that then fails so often."""

    async def part(ctx: Context) -> str:
        async def outer() -> str:
            calls.append("outer")
            inner = await ctx.step("inner", calls.do, "inner")
            await ctx.step("pay", calls.do, "pay", effect="once")
            if calls.count("outer") <= failures:
                raise ConnectionError("service down")
            return inner

        return await ctx.step(name, outer)

    return part


async def automatic_retry(scene: Scene) -> None:
    calls = Calls()
    await ended(await scene.begun(nested(calls, failures=1), retry=AT_ONCE))
    assert calls == ["outer", "inner", "pay", "outer"]


async def resume(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.begun(nested(calls, failures=1))
    assert "service down" in await scene.failure(handle)
    await scene.hold.resume(handle)
    await ended(handle)
    assert calls == ["outer", "inner", "pay", "outer"]


async def retry(scene: Scene) -> None:
    calls = Calls()
    await scene.by_retry(nested(calls))
    assert calls == ["outer", "inner", "pay", "outer", "inner"]


async def new_round(scene: Scene) -> None:
    calls = Calls()
    await scene.by_new_round(nested(calls))
    assert calls == ["outer", "inner", "pay", "outer", "inner"]


async def fork(scene: Scene) -> None:
    """At the outer step all of it is shared."""
    calls = Calls()
    await scene.by_fork(nested(calls))
    assert calls == ["outer", "inner", "pay"]


async def fork_at_an_inner_step(scene: Scene) -> None:
    """What is inside, up to there, replays; the step around it is done by the fork."""
    calls = Calls()
    await scene.by_fork(nested(calls), at=INNER)
    assert calls == ["outer", "inner", "pay", "outer", "pay"]


async def fork_inside_a_once_step(scene: Scene) -> None:
    calls = Calls()

    async def part(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step("inner", calls.do, "inner")

        await ctx.step("outer", outer, effect="once")

    handle = await scene.begun(part)
    await ended(handle)
    with pytest.raises(Conflict, match="once"):
        await scene.hold.fork(handle, at=INNER)


def hanging(calls: Calls) -> Part:
    """An inner step that is completed, and one that never ends."""

    async def hang() -> None:
        calls.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            calls.append("inner stopped")

    async def part(ctx: Context) -> None:
        async def outer() -> None:
            try:
                await ctx.step("inner", calls.do, "inner")
                await ctx.step("hang", hang)
            finally:
                calls.append("outer stopped")

        await ctx.step("outer", outer)

    return part


async def cancel(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.by_cancel(hanging(calls), when=lambda: "begun" in calls)
    assert calls == ["inner", "begun", "inner stopped", "outer stopped"]
    assert await scene.state(handle, INNER) is StepState.COMPLETED


def undoable(calls: Calls) -> Part:
    """An inner step that is completed and can be undone, inside a step that never ends."""

    async def part(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step("inner", calls.do, "inner", compensate=lambda *_: calls.append("undone"))
            calls.append("begun")
            await asyncio.Event().wait()

        await ctx.step("outer", outer)

    return part


async def cancel_undoes_what_is_inside(scene: Scene) -> None:
    calls = Calls()
    await scene.by_cancel(undoable(calls), when=lambda: "begun" in calls)
    assert (calls.count("inner"), calls[-1]) == (1, "undone")


async def deadline_undoes_what_is_inside(scene: Scene) -> None:
    calls = Calls()
    await scene.by_deadline(undoable(calls))
    assert calls[-1] == "undone"


async def deadline(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.by_deadline(hanging(calls))
    assert calls == ["inner", "begun", "inner stopped", "outer stopped"]
    assert await scene.state(handle, INNER) is StepState.COMPLETED


async def suspension(scene: Scene) -> None:
    """A wait inside a step: the task keeps its worker, and the step is not begun again."""
    calls = Calls()

    async def part(ctx: Context) -> None:
        async def outer() -> None:
            calls.append("outer")
            await ctx.sleep(SOON)

        await ctx.step("outer", outer)

    handle = await scene.begun(part)
    await ended(handle)
    assert calls == ["outer"]
    assert TaskState.WAITING not in (await scene.box.trace(handle)).states


async def take_over(scene: Scene) -> None:
    calls = Calls()
    scene.box.crash("outer", when="after_effect")
    await ended(await scene.begun(nested(calls)))
    assert calls == ["outer", "inner", "pay", "outer"]


async def take_over_of_a_wait(scene: Scene) -> None:
    """It rests on its worker, whose death does not count against it; then it still gets what it waits for."""

    async def part(ctx: Context) -> object:
        async def outer() -> object:
            return await ctx.wait_event("go")

        return await ctx.step("outer", outer)

    handle = await scene.begun(part)
    for _ in range(2):
        with scene.box.frozen():
            await scene.box.advance(2 * QUIET_FOR)
            resting = await handle.task()
            assert (resting.state, resting.resting) == (TaskState.RUNNING, True)
            scene.box.crash_now()
            await scene.box.advance(60)
        assert (await handle.task()).deaths == 0
    await scene.hold.emit("go", "on")
    assert await ended(handle) == "on"


async def deploy(scene: Scene) -> None:
    """Under another name of the outer step the inner ones are others too."""
    calls = Calls()
    await scene.by_deploy(nested(calls), nested(calls, name="renamed"))
    assert calls == ["outer", "inner", "pay", "outer", "inner", "pay"]


async def prune(scene: Scene) -> None:
    run = await scene.by_prune(nested(Calls()))
    assert await steps_of(scene.hold, run.handle) == {}
