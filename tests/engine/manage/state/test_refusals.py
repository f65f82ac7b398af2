"""A refused charge or patch: code that handled it goes the same way again, and one that ended its task is repeated."""

from holdfast import (
    Budget,
    BudgetExceeded,
    Context,
    Holdfast,
    InvalidValue,
    Retry,
    StatePatch,
    SyncContext,
    TaskFailed,
    TaskState,
)
from holdfast.engine.api.handle import Handle
from holdfast.model.budget import Meter
from tests.engine.support import ended, reaches

ASKS = StatePatch(add_questions=("Which?",))
ANSWERS = StatePatch(resolve_questions=("Which?",))


async def test_a_charge_that_was_refused_is_refused_again_at_that_place(hold: Holdfast) -> None:
    """More budget while the task waits must not send its replay into work that it had given up."""
    did: list[str] = []
    refused: list[tuple[str, int, int, int]] = []

    @hold.task(budget=Budget(max_steps=2))
    async def loop(ctx: Context) -> int:
        done = 0
        try:
            while done < 9:
                await ctx.charge(steps=1)
                done += 1
                await ctx.step(f"work-{done}", did.append, f"work-{done}", effect="once")
        except BudgetExceeded as error:
            refused.append((error.meter, error.limit, error.spent, error.asked))
            await ctx.step("give-up", did.append, "give-up", effect="once")
        await ctx.wait_event("go")
        await ctx.charge(steps=1)  # a new place: it goes by what there is now
        return done

    async with hold.worker():
        handle = await hold.submit(loop)
        await reaches(handle, TaskState.WAITING)
        await hold.extend_budget(handle, Budget(max_steps=5), by="ann")
        await hold.emit("go")
        assert await ended(handle) == 2
    assert did == ["work-1", "work-2", "give-up"]
    assert refused == [("steps", 2, 2, 1)] * 2
    assert (await hold.budget(handle)).lines[Meter.STEPS].spent == 3


async def test_a_charge_that_ended_the_task_is_made_when_it_is_resumed(hold: Holdfast) -> None:
    """Also inside a step, and in blocking code. A new grant that is still too small fails it again."""

    @hold.task(budget=Budget(max_steps=2))
    async def loop(ctx: Context) -> str:
        async def inside() -> str:
            await ctx.charge(steps=2)
            await ctx.charge(steps=2)
            return "done"

        return await ctx.step("outer", inside, retry=Retry(max_attempts=2, initial=0.001))

    @hold.task(budget=Budget(max_steps=2))
    def blocking(ctx: SyncContext) -> str:
        ctx.charge(steps=2)
        ctx.charge(steps=2)
        return "done"

    async with hold.worker():
        for task in (loop, blocking):
            handle = await hold.submit(task)
            for limit in (3, 4):
                assert "steps is spent" in str(await _failure(handle))
                await hold.extend_budget(handle, Budget(max_steps=limit), by="ann")
                await hold.resume(handle)
            assert await ended(handle) == "done"
            steps = (await hold.budget(handle)).lines[Meter.STEPS]
            assert (steps.spent, steps.reserved) == (4, 0)


async def _failure(handle: Handle[str]) -> TaskFailed:
    try:
        await ended(handle)
    except TaskFailed as error:
        return error
    raise AssertionError("it has not failed")


async def test_a_patch_that_was_refused_is_refused_again_at_that_place(hold: Holdfast) -> None:
    did: list[str] = []

    @hold.task
    async def job(ctx: Context) -> str:
        try:
            await ctx.patch(ANSWERS)
            await ctx.step("answered", did.append, "answered", effect="once")
        except InvalidValue as error:
            await ctx.step("open", did.append, str(error)[:8], effect="once")
        await ctx.wait_event("go")
        return "done"

    async with hold.worker():
        handle = await hold.submit(job)
        await reaches(handle, TaskState.WAITING)
        await hold.patch_state(handle, ASKS, version=0, by="ann")
        await hold.emit("go")
        assert await ended(handle) == "done"
    assert len(did) == 1
    assert (await hold.state(handle)).open_questions == ("Which?",)


async def test_a_patch_that_ended_the_task_is_made_when_it_is_resumed(hold: Holdfast) -> None:
    @hold.task
    async def job(ctx: Context) -> str:
        await ctx.patch(StatePatch(goal="ask"))
        state = await ctx.patch(ANSWERS)
        return state.goal

    async with hold.worker():
        handle = await hold.submit(job)
        assert "not open" in str(await _failure(handle))
    await hold.resume(handle)
    await hold.patch_state(handle, ASKS, version=1, by="ann")
    async with hold.worker():
        assert await ended(handle) == "ask"
    assert (await hold.state(handle)).open_questions == ()
    assert [one.version for one in await hold.state_history(handle)] == [1, 2, 3]
