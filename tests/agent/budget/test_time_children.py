"""The wall time of a plain task whose children are plain tasks, and of one whose limit its code does not name."""

from __future__ import annotations

import asyncio

from holdfast import Budget, Context, Holdfast, StatePatch, TaskFilter
from holdfast.engine.steps.children import CALLER_OUT_OF_TIME
from holdfast.testing import sandbox
from tests.agent.budget.hanging import HOUR, LONG, MINUTE, failed_in_time, last_reason, waits
from tests.agent.budget.support import PATIENCE, spent_ms
from tests.engine.support import until

LIMIT = Budget(max_wall_time_ms=MINUTE)


async def hang() -> None:
    await asyncio.Event().wait()


async def test_children_are_held_to_the_clock_of_their_parent(app: Holdfast) -> None:
    """One that works, one that only waits, and one further down. All go on when the parent gets more time."""

    @app.task
    async def works(ctx: Context) -> str:
        begun.append(1)
        if len(begun) == 1:
            await ctx.step("hang", hang)
        return "worked"

    @app.task
    async def listens(ctx: Context) -> str:
        return str(await ctx.wait_event("go"))

    @app.task
    async def delegates(ctx: Context) -> str:
        return str(await (await ctx.submit(works)).result())

    @app.task(budget=LIMIT)
    async def parent(ctx: Context, name: str) -> str:
        return str(await (await ctx.submit(name)).result())

    for name, result in (("works", "worked"), ("listens", "went"), ("delegates", "worked")):
        begun: list[int] = []
        async with sandbox(app):
            task = await app.submit(parent, name)
            await failed_in_time(app, task)
            for child in (await app.store.find(TaskFilter())).items:
                if child.id != task.id:
                    assert await last_reason(app, child.id) == CALLER_OUT_OF_TIME
            await app.emit("go", "went")
            await app.extend_budget(task, Budget(max_wall_time_ms=LONG), by="ann")
            await app.resume(task)
            assert await task.result() == result


async def test_a_child_that_asks_a_person_inside_a_step_stops_the_clock_of_its_parent(app: Holdfast) -> None:
    """It rests on its worker, and its own code has no budget."""

    @app.task
    async def asks(ctx: Context) -> str:
        async def inside() -> str:
            await ctx.approval("Go on?")
            return "done"

        return await ctx.step("outer", inside)

    @app.task(budget=LIMIT)
    async def parent(ctx: Context) -> str:
        return str(await (await ctx.submit(asks)).result())

    async with sandbox(app) as box:
        task = await app.submit(parent)
        await until(app.approvals, patience=PATIENCE)
        await until(lambda: waits(task), patience=PATIENCE)
        with box.frozen():
            await box.advance(300)
        [asked] = await app.approvals()
        await app.approve(asked.id, by="ann")
        assert await task.result() == "done"
        assert await spent_ms(app, task) < MINUTE


async def test_a_child_that_works_beside_a_question_ends_its_parent_in_time(app: Holdfast) -> None:
    @app.task
    async def asks(ctx: Context) -> None:
        await ctx.approval("Go on?")

    @app.task
    async def works(ctx: Context) -> None:
        await ctx.step("hang", hang)

    @app.task(budget=Budget(max_wall_time_ms=5 * MINUTE))
    async def parent(ctx: Context) -> None:
        children = [await ctx.submit(asks), await ctx.submit(works)]
        await asyncio.gather(*(child.result() for child in children))

    async with sandbox(app):
        await failed_in_time(app, await app.submit(parent))


async def test_a_child_goes_on_when_its_parent_has_ended_in_time(app: Holdfast) -> None:
    @app.task
    async def outlives(ctx: Context) -> str:
        await ctx.sleep(HOUR)
        await ctx.step("work", asyncio.sleep, 0)
        return "done"

    @app.task(budget=LIMIT)
    async def parent(ctx: Context) -> str:
        return (await ctx.submit(outlives)).id

    async with sandbox(app):
        task = await app.submit(parent)
        child = app.handle(await task.result())
        assert await child.result() == "done"


async def test_a_limit_counts_that_the_code_does_not_name(either: Holdfast, database_url: str) -> None:
    """It was set from outside, or the task was submitted when the code still named it."""
    other = Holdfast(database_url)

    @either.task
    async def job(ctx: Context) -> None:
        begun.append(1)
        await ctx.step("hang", hang)

    @other.task(name="job", budget=Budget(max_wall_time_ms=0))
    async def before(ctx: Context) -> None:
        await ctx.patch(StatePatch(goal="never begun"))

    begun: list[int] = []
    granted = await either.submit(job)
    await either.extend_budget(granted, Budget(max_wall_time_ms=0), by="ann")
    async with other:
        submitted = await other.submit(before)
        await other.patch_state(submitted, StatePatch(goal="g"), version=0, by="ann")
    async with either.worker():
        for task in (granted, either.handle(submitted.id)):
            await failed_in_time(either, task)
    assert not begun
