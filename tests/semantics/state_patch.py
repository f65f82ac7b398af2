"""A patch of the AgentState by the task's own code: ``ctx.patch``, and what ``ctx.state`` shows."""

import asyncio
from typing import Any

import pytest

from holdfast import Conflict, Context, Handle, NotFound, StatePatch
from tests.semantics.scene import AT_ONCE, Part, Scene


def patching(seen: list[tuple[str, ...]]) -> Part:
    """Look, patch, look, patch inside a step, look again."""

    async def part(ctx: Context) -> None:
        async def inner() -> None:
            await ctx.patch(StatePatch(set_flags=(f"inner {ctx.task.round}",)))

        looks = [ctx.state.risk_flags]
        await ctx.patch(StatePatch(set_flags=(f"own {ctx.task.round}",)))
        looks.append(ctx.state.risk_flags)
        await ctx.step("work", inner)
        looks.append(ctx.state.risk_flags)
        seen.append(tuple(" + ".join(flags) for flags in looks))

    return part


LOOKS = ("", "own 1", "own 1 + inner 1")
AGAIN = ("own 1 + inner 1", "own 1 + inner 1 + own 2", "own 1 + inner 1 + own 2 + inner 2")


async def versions(handle: Handle[Any]) -> int:
    return (await handle.task()).version


async def automatic_retry(scene: Scene) -> None:
    seen: list[tuple[str, ...]] = []
    run = await scene.by_automatic_retry(patching(seen))
    assert seen == [LOOKS, LOOKS], "each attempt sees the same at the same place"
    assert await versions(run.handle) == 2


async def retry_of_the_step_around_it(scene: Scene) -> None:
    tries: list[int] = []

    async def part(ctx: Context) -> None:
        async def inner() -> None:
            await ctx.patch(StatePatch(set_flags=("inner",)))
            tries.append(len(tries))
            if len(tries) == 1:
                raise ConnectionError("service down")

        await ctx.step("work", inner, retry=AT_ONCE)

    handle = await scene.begun(part)
    await asyncio.wait_for(handle.result(), 60)
    assert (len(tries), await versions(handle)) == (2, 1)


async def resume(scene: Scene) -> None:
    seen: list[tuple[str, ...]] = []
    run = await scene.by_resume(patching(seen))
    assert seen == [LOOKS, LOOKS]
    assert await versions(run.handle) == 2


async def take_over(scene: Scene) -> None:
    seen: list[tuple[str, ...]] = []
    run = await scene.by_take_over(patching(seen))
    assert seen == [LOOKS, LOOKS]
    assert await versions(run.handle) == 2


async def suspension(scene: Scene) -> None:
    seen: list[tuple[str, ...]] = []
    run = await scene.by_suspension(patching(seen))
    assert set(seen) == {LOOKS}
    assert await versions(run.handle) == 2


async def suspension_with_a_patch_from_outside(scene: Scene) -> None:
    """It is not seen where the code has looked before; the next patch, or a refresh, brings it."""
    looks: list[tuple[str, ...]] = []

    async def part(ctx: Context) -> None:
        looks.append(ctx.state.risk_flags)
        await ctx.wait_event("go")
        looks.append(ctx.state.risk_flags)
        looks.append((await ctx.refresh_state()).risk_flags)
        looks.append(ctx.state.risk_flags)

    handle = await scene.begun(part)
    await scene.waits(handle)
    await scene.hold.patch_state(handle, StatePatch(set_flags=("outside",)), version=0, by="ann")
    await scene.hold.emit("go")
    await asyncio.wait_for(handle.result(), 60)
    assert looks == [(), (), (), ("outside",), ("outside",)], "the first look is that of the first attempt, twice"


async def deploy(scene: Scene) -> None:
    async def old(ctx: Context) -> None:
        await ctx.patch(StatePatch(set_flags=("old",)))

    async def new(ctx: Context) -> list[str]:
        await ctx.patch(StatePatch(set_flags=("new",)))
        return list(ctx.state.risk_flags)

    run = await scene.by_deploy(old, new)
    assert run.result == ["old"]


async def retry(scene: Scene) -> None:
    seen: list[tuple[str, ...]] = []
    run = await scene.by_retry(patching(seen))
    assert seen == [LOOKS, AGAIN]
    assert await versions(run.handle) == 4


async def new_round(scene: Scene) -> None:
    seen: list[tuple[str, ...]] = []
    run = await scene.by_new_round(patching(seen))
    assert seen == [LOOKS, AGAIN]
    assert await versions(run.handle) == 4


async def fork(scene: Scene) -> None:
    seen: list[tuple[str, ...]] = []
    run = await scene.by_fork(patching(seen))
    assert seen == [LOOKS, LOOKS]
    assert await versions(run.handle) == 2, "the fork has the patches, and applies none of them again"


async def fork_with_a_patch(scene: Scene) -> None:
    """The code of the fork sees the patch it was made with once it has left the past that it shares."""

    @scene.hold.task
    async def job(ctx: Context) -> list[list[str]]:
        await ctx.patch(StatePatch(set_flags=("first",)))
        before = list(ctx.state.risk_flags)
        await ctx.step("look", lambda: None)
        between = list(ctx.state.risk_flags)
        await ctx.step("act", lambda: None)
        return [before, between, list(ctx.state.risk_flags)]

    origin = await scene.hold.submit(job)
    await asyncio.wait_for(origin.result(), 60)
    forked = await scene.hold.fork(origin, at="look", patch=StatePatch(set_flags=("other way",)))
    assert await asyncio.wait_for(forked.result(), 60) == [
        ["first"],
        ["first", "other way"],
        ["first", "other way"],
    ]


async def cancel(scene: Scene) -> None:
    begun = asyncio.Event()

    async def part(ctx: Context) -> None:
        await ctx.patch(StatePatch(set_flags=("own",)))
        begun.set()
        await ctx.step("hang", asyncio.Event().wait)

    handle = await scene.by_cancel(part, when=begun.is_set)
    assert (await scene.hold.state(handle)).risk_flags == ("own",)
    with pytest.raises(Conflict, match="cancelled"):
        await scene.hold.patch_state(handle, StatePatch(goal="late"), version=1, by="ann")


async def deadline(scene: Scene) -> None:
    async def part(ctx: Context) -> None:
        await ctx.patch(StatePatch(set_flags=("own",)))
        await ctx.step("hang", asyncio.Event().wait)
        await ctx.patch(StatePatch(set_flags=("late",)))

    handle = await scene.by_deadline(part)
    assert (await scene.hold.state(handle)).risk_flags == ("own",)


async def prune(scene: Scene) -> None:
    run = await scene.by_prune(patching([]))
    with pytest.raises(NotFound):
        await scene.hold.state(run.handle)
