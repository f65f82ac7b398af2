"""Time in a sandbox: it skips waits exactly, and stands still while code runs."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Context, DeadlineExceeded, Holdfast, Retry, SyncContext, TaskDefinition, TaskFailed, TaskState
from holdfast.model.errors import StepFailed
from holdfast.testing import sandbox

hold = Holdfast("memory://")
DAY = timedelta(days=1)


async def nothing() -> None: ...


@hold.task
async def sleepy(ctx: Context, seconds: float) -> None:
    await ctx.sleep(seconds)


@hold.task
def blocking_sleepy(ctx: SyncContext, seconds: float) -> None:
    ctx.sleep(seconds)


@hold.task
async def patient(ctx: Context, timeout: float | None) -> str:
    return str(await ctx.wait_event("answer", timeout=timeout))


@pytest.mark.parametrize("task", [sleepy, blocking_sleepy], ids=["async", "blocking"])
@pytest.mark.parametrize("seconds", [0.01, 2, 59, 3 * 86_400, 365 * 86_400])
async def test_a_sleep_takes_exactly_its_time_and_no_real_one(
    task: TaskDefinition[[float], None], seconds: float
) -> None:
    began = time.monotonic()
    async with sandbox(hold) as box:
        handle = await hold.submit(task, seconds)
        await handle.result()
        assert box.elapsed == timedelta(seconds=seconds)
    assert time.monotonic() - began < 45  # less than the shortest of those that would be noticed


async def test_many_sleepers_each_get_their_own_time() -> None:
    async with sandbox(hold) as box:
        handles = [await hold.submit(sleepy, hours * 3600) for hours in (24, 1, 5, 1)]
        await asyncio.gather(*(handle.result() for handle in handles))
        traces = [await box.trace(handle) for handle in handles]
    assert [trace.took for trace in traces] == [timedelta(hours=hours) for hours in (24, 1, 5, 1)]


async def test_retries_of_the_step_and_of_the_task_are_not_waited_for() -> None:
    app = Holdfast("memory://")

    async def refuse() -> None:
        raise ConnectionError

    @app.task(retry=Retry(max_attempts=2, initial=600, max_delay=600, jitter="none"))
    async def stubborn(ctx: Context) -> None:
        await ctx.step("call", refuse, retry=Retry(max_attempts=3, initial=2, factor=30, jitter="none"))

    async with sandbox(app) as box:
        handle = await app.submit(stubborn)
        with pytest.raises(TaskFailed):
            await handle.result()
        # Twice 2 s and 60 s between the tries of the step, and 600 s between the attempts.
        assert box.elapsed == timedelta(seconds=2 * 62 + 600)
        assert (await box.trace(handle)).runs == {"call": 6}


async def test_a_deadline_is_reached_while_the_task_waits() -> None:
    async with sandbox(hold) as box:
        handle = await hold.submit(sleepy, 86_400, deadline=3600)
        with pytest.raises(TaskFailed, match="deadline"):
            await handle.result()
        assert box.elapsed == timedelta(hours=1)


async def test_a_delayed_task_is_not_waited_for() -> None:
    async with sandbox(hold) as box:
        await (await hold.submit(sleepy, 1, delay=DAY)).result()
        assert box.elapsed == DAY + timedelta(seconds=1)


async def test_a_wait_for_an_event_times_out() -> None:
    async with sandbox(hold) as box:
        with pytest.raises(TaskFailed, match="event"):
            await (await hold.submit(patient, 3600, deadline=DAY)).result()
        assert box.elapsed >= timedelta(hours=1)


async def test_a_step_that_hangs_reaches_its_timeout() -> None:
    app = Holdfast("memory://")

    @app.task
    async def stuck(ctx: Context) -> str:
        try:
            await ctx.step("hang", asyncio.Event().wait, timeout=30)
        except StepFailed as error:
            return error.failure.type_name
        return "went on"

    async with sandbox(app, patience=0.05) as box:
        assert (await (await app.submit(stuck)).result()).endswith("DeadlineExceeded")
        assert box.elapsed == timedelta(seconds=30)


async def test_a_handle_stops_waiting() -> None:
    async with sandbox(hold) as box:
        handle = await hold.submit(patient, None)
        with pytest.raises(DeadlineExceeded):
            await handle.result(timeout=60)
        assert box.elapsed == timedelta(seconds=60)
        await hold.emit("answer", "yes")
        assert await handle.result(timeout=60) == "yes"


async def test_a_handle_that_waits_for_less_than_the_next_thing_still_stops_waiting() -> None:
    async with sandbox(hold):
        handle = await hold.submit(sleepy, 86_400)
        with pytest.raises(DeadlineExceeded):
            await handle.result(timeout=60)
        await handle.result()


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "blocking"])
async def test_time_stands_still_while_a_step_takes_real_time(is_async: bool) -> None:
    app = Holdfast("memory://")

    async def fetch() -> str:
        await asyncio.sleep(0.1)
        return "fetched"

    def fetch_blocking() -> str:
        time.sleep(0.1)
        return "fetched"

    @app.task
    async def download(ctx: Context) -> str:
        return await ctx.step("fetch", fetch if is_async else fetch_blocking, timeout=1)

    async with sandbox(app, patience=5) as box:
        assert await (await app.submit(download)).result() == "fetched"
        assert box.elapsed == timedelta()


async def test_time_stands_still_while_the_task_itself_takes_real_time() -> None:
    app = Holdfast("memory://")

    @app.task(deadline=1)
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(0.1)
        await ctx.step("end", nothing)

    async with sandbox(app, patience=5) as box:
        await (await app.submit(slow)).result()
        assert box.elapsed == timedelta()


async def test_time_stands_still_while_one_branch_works_and_another_waits() -> None:
    app = Holdfast("memory://")

    async def fetch() -> str:
        await asyncio.sleep(0.1)
        return "fetched"

    @app.task
    async def both(ctx: Context) -> str:
        async with asyncio.TaskGroup() as branches:
            fetched = branches.create_task(ctx.step("fetch", fetch, timeout=1))
            branches.create_task(ctx.sleep(3600))
        return fetched.result()

    async with sandbox(app, patience=5) as box:
        assert await (await app.submit(both)).result() == "fetched"
        assert box.elapsed == timedelta(hours=1)


async def test_a_frozen_task_is_looked_at_in_the_middle() -> None:
    async with sandbox(hold) as box:
        with box.frozen():
            handle = await hold.submit(patient, 86_400)
            await box.idle()
            await asyncio.sleep(0.05)
            assert (await handle.task()).state is TaskState.WAITING
            await box.advance(timedelta(hours=23))
            assert (await handle.task()).state is TaskState.WAITING
            assert box.elapsed == timedelta(hours=23)
            await hold.emit("answer", 42)
            await box.idle()
            assert (await handle.task()).state is TaskState.COMPLETED
        assert await handle.result() == "42"
        assert box.elapsed == timedelta(hours=23)


async def test_advancing_brings_what_is_due_at_its_own_time() -> None:
    async with sandbox(hold) as box:
        with box.frozen():
            handle = await hold.submit(sleepy, 3600)
            await box.advance(DAY)
        assert (await box.trace(handle)).took == timedelta(hours=1)
        assert box.elapsed == DAY


async def test_time_goes_on_when_nothing_is_left_to_do() -> None:
    async with sandbox(hold) as box:
        await box.advance(365 * DAY)
        assert box.elapsed >= 365 * DAY
        await (await hold.submit(sleepy, 60)).result()


async def test_work_that_comes_while_the_worker_rests_is_done_at_once() -> None:
    async with sandbox(hold) as box:
        with box.frozen():
            await box.advance(DAY)
            handle = await hold.submit(patient, None)
            await box.advance(DAY)
            await hold.emit("answer", 1)
            await box.idle()
            assert await handle.result() == "1"
            assert box.elapsed == 2 * DAY


async def test_time_begins_where_the_test_wants_it() -> None:
    start = datetime(2031, 2, 3, tzinfo=UTC)
    async with sandbox(hold, start=start) as box:
        handle = await hold.submit(sleepy, 60)
        assert (await handle.task()).created_at == start
        await handle.result()
        assert box.clock.now() == start + timedelta(minutes=1)


async def test_another_worker_of_the_test_keeps_its_lease_through_long_waits() -> None:
    async with sandbox(hold, queues="elsewhere") as box, hold.worker(lease=30) as worker:
        before = worker.id
        await (await hold.submit(sleepy, 120)).result()
        assert worker.id == before
        assert box.elapsed == timedelta(minutes=2)
