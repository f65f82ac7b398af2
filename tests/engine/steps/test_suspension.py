"""Taking a task off its worker: only when every branch of its code waits for something outside."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast import Context, Handle, Holdfast, ManualClock, Retry, StepFailed, StepState, TaskFailed, TaskState
from tests.engine.support import count_moves, ended, pass_time, reaches, settle, steps_of, until

Shape = Callable[[Context], Awaitable[object]]
Gated = Callable[[Context, asyncio.Event], Awaitable[object]]
"""What goes on by itself until the event is set."""


async def one(ctx: Context) -> None:
    await ctx.wait_event("go")


async def nested(ctx: Context) -> None:
    async def inner() -> None:
        await one(ctx)

    await inner()


async def gathered(ctx: Context) -> None:
    await asyncio.gather(ctx.wait_event("go"), ctx.sleep(100))


async def grouped(ctx: Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.wait_event("go"))
        group.create_task(ctx.sleep(100))


async def waited(ctx: Context) -> None:
    branches = [asyncio.create_task(ctx.wait_event("go")), asyncio.create_task(ctx.sleep(100))]
    await asyncio.wait(branches)


async def a_task(ctx: Context) -> None:
    await asyncio.create_task(ctx.wait_event("go"))


async def deep(ctx: Context) -> None:
    async def group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(gathered(ctx))
            group.create_task(ctx.wait_event("other"))

    await asyncio.gather(asyncio.create_task(group()), ctx.sleep(100, key="outer"))


@pytest.mark.parametrize("shape", [one, nested, gathered, grouped, waited, a_task, deep])
async def test_a_task_whose_branches_all_wait_is_suspended(still: Holdfast, clock: ManualClock, shape: Shape) -> None:
    @still.task
    async def work(ctx: Context) -> str:
        await shape(ctx)
        return "done"

    handle = await still.submit(work)
    async with still.worker(grace=0.0) as worker:
        await reaches(handle, TaskState.WAITING)
        await settle()
        assert worker.running == 0
        await still.emit("go")
        await still.emit("other")
        await pass_time(clock, 100.0, by=10.0)
        assert await ended(handle) == "done"


async def raw_sleep(ctx: Context, over: asyncio.Event) -> None:
    async def sleep() -> None:
        while not over.is_set():  # noqa: ASYNC110 - the point: it sleeps
            await asyncio.sleep(0.02)

    await asyncio.gather(ctx.wait_event("go"), sleep())


async def raw_event(ctx: Context, over: asyncio.Event) -> None:
    await asyncio.gather(ctx.wait_event("go"), over.wait())


async def with_wait_for(ctx: Context, _: asyncio.Event) -> None:
    await asyncio.wait_for(ctx.wait_event("go"), 60)


async def with_timeout(ctx: Context, _: asyncio.Event) -> None:
    async with asyncio.timeout(60):
        await ctx.wait_event("go")


async def with_timeout_around_branches(ctx: Context, _: asyncio.Event) -> None:
    async with asyncio.timeout(60):
        await asyncio.gather(ctx.wait_event("go"), ctx.wait_event("go", key="too"))


async def with_wait_timeout(ctx: Context, _: asyncio.Event) -> None:
    await asyncio.wait([asyncio.create_task(ctx.wait_event("go"))], timeout=60)


async def step_beside(ctx: Context, over: asyncio.Event) -> None:
    await asyncio.gather(ctx.wait_event("go"), ctx.step("slow", over.wait))


@pytest.mark.parametrize(
    "shape",
    [
        raw_sleep,
        raw_event,
        with_wait_for,
        with_timeout,
        with_timeout_around_branches,
        with_wait_timeout,
        step_beside,
    ],
)
async def test_what_might_go_on_by_itself_keeps_its_slot_and_is_answered_in_place(
    quick: Holdfast, shape: Gated
) -> None:
    runs, over = 0, asyncio.Event()

    @quick.task
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        await shape(ctx, over)
        return "done"

    handle = await quick.submit(work)
    async with quick.worker() as worker:
        await until(lambda: runs == 1)
        await asyncio.sleep(0.05)
        assert worker.running == 1
        await quick.emit("go")
        await quick.emit("go")
        await until_heard(quick, handle)
        over.set()
        assert await ended(handle) == "done"
    assert runs == 1
    assert await count_moves(quick, handle, TaskState.WAITING) == 0


async def until_heard(hold: Holdfast, handle: Handle[str]) -> None:
    """Return when the event has been answered."""

    async def is_answered() -> bool:
        step = (await steps_of(hold, handle)).get("event:go")
        return step is not None and step.state is StepState.COMPLETED

    await until(is_answered)


async def test_a_timeout_around_a_durable_wait_fires(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.05):
                await ctx.wait_event("never")
        except TimeoutError:
            return "gave up"
        return "heard"

    handle = await quick.submit(work)
    async with quick.worker():
        assert await handle.result(timeout=60) == "gave up"


async def test_once_the_busy_branch_is_through_the_slot_is_given_back(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        await asyncio.gather(ctx.wait_event("go"), ctx.step("slow", over.wait))
        return "done"

    over = asyncio.Event()
    handle = await quick.submit(work)
    async with quick.worker() as worker:
        await until(lambda: worker.running == 1)
        over.set()
        await reaches(handle, TaskState.WAITING)
        await quick.emit("go")
        assert await handle.result(timeout=60) == "done"


async def test_a_suspension_unwinds_the_code_and_ctx_refuses_everything_afterwards(still: Holdfast) -> None:
    seen: list[str] = []
    refused: list[str] = []

    @still.task
    async def work(ctx: Context) -> str:
        try:
            await ctx.wait_event("go")
        except Exception:  # noqa: BLE001 - a suspension is not an exception, which is the point
            seen.append("swallowed")
        finally:
            seen.append("finally")
            if len(seen) == 1:
                calls: list[Awaitable[object]] = [
                    ctx.step("late", seen.append, "ran"),
                    ctx.sleep(1),
                    ctx.wait_event("other"),
                    ctx.progress(1),
                    ctx.submit("unknown", queue="nowhere"),
                ]
                for call in calls:
                    try:
                        await call
                    except BaseException as error:  # noqa: BLE001
                        refused.append(type(error).__name__)
        return "done"

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
        await settle()
        assert seen == ["finally"]
        assert refused == ["Unwind"] * 5
        await still.emit("go")
        assert await ended(handle) == "done"
    assert seen == ["finally", "finally"]
    assert {step.key for step in await still.store.steps(handle.id)} == {"event:go"}


async def test_code_that_goes_on_after_its_suspension_changes_nothing(still: Holdfast) -> None:
    runs = 0

    @still.task
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        try:
            await ctx.wait_event("go")
        except BaseException:  # noqa: BLE001 - the test is about code that does this
            return "swallowed"
        return "done"

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
        await settle()
        assert (await handle.task()).state is TaskState.WAITING
        await still.emit("go")
        assert await ended(handle) == "done"
    assert runs == 2


async def test_many_waiting_tasks_share_one_slot(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context, number: int) -> int:
        await ctx.wait_event("go")
        return number

    handles = await quick.submit_many(work, [(n,) for n in range(50)])
    async with quick.worker(concurrency=1):
        for handle in handles:
            await reaches(handle, TaskState.WAITING)
        await quick.emit("go")
        assert [await handle.result(timeout=60) for handle in handles] == list(range(50))


async def test_a_failure_beside_a_wait_is_handled_in_place(quick: Holdfast) -> None:
    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise ConnectionError

    @quick.task
    async def work(ctx: Context) -> str:
        answer = "not handled"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.wait_event("never"))
                group.create_task(ctx.step("fragile", fail))
        except* StepFailed:
            answer = "handled"
        return answer

    handle = await quick.submit(work)
    async with quick.worker():
        assert await handle.result(timeout=60) == "handled"


async def test_a_branch_that_fails_beside_a_wait_is_not_suspended_away(hold: Holdfast) -> None:
    """The code that gathers it gets it a turn of the loop later; until then all that is left seems to wait."""

    @hold.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context, number: int) -> None:
        async def fails() -> None:
            await ctx.wait_event(f"fail-{number}")
            raise ValueError("broken")

        await asyncio.gather(ctx.wait_event("never"), fails())

    for number in range(10):
        handle = await hold.submit(work, number)
        async with hold.worker():
            await reaches(handle, TaskState.WAITING)
            await hold.emit(f"fail-{number}")
            with pytest.raises(TaskFailed, match="broken"):
                await handle.result(timeout=60)
