"""Deadlines: in the queue, while running, while waiting, across restarts; and the timeouts of steps."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, ManualClock, Retry, StepState, SyncContext, TaskFailed, TaskState
from holdfast.model.commit import Commit, Verdict
from tests.engine.support import PATIENCE, crash, ended, pass_time, reaches, settle, steps_of, until

ONCE = Retry(max_attempts=1)


async def failure_of(handle: Handle[Any], pattern: str) -> TaskFailed:
    with pytest.raises(TaskFailed, match=pattern) as failed:
        await ended(handle)
    return failed.value


async def test_a_task_whose_deadline_passes_in_the_queue_never_runs(still: Holdfast, clock: ManualClock) -> None:
    ran = False

    @still.task(deadline=timedelta(seconds=10))
    async def work(ctx: Context) -> None:
        nonlocal ran
        ran = True

    handle = await still.submit(work)
    clock.advance(12.5)
    async with still.worker(grace=0.0):
        await failure_of(handle, r"deadline of task .* \(2026-01-01T00:00:10\+00:00\) passed \d")
    assert not ran


async def test_a_queued_task_fails_on_time_while_its_worker_is_busy(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def busy(ctx: Context) -> None:
        await asyncio.sleep(60)

    first = await still.submit(busy, priority=1)
    second = await still.submit(busy, deadline=5.0)
    async with still.worker(concurrency=1, grace=0.0):
        await reaches(first, TaskState.RUNNING)
        await pass_time(clock, 4.5)
        assert (await second.task()).state is TaskState.PENDING
        await pass_time(clock, 0.5)
        assert (await second.task()).state is TaskState.FAILED


async def test_a_running_task_is_stopped_at_its_deadline(still: Holdfast, clock: ManualClock) -> None:
    stopped = False

    @still.task
    async def work(ctx: Context) -> None:
        nonlocal stopped
        try:
            await asyncio.sleep(60)
        finally:
            stopped = True

    handle = await still.submit(work, deadline=timedelta(seconds=10))
    async with still.worker(grace=0.0):
        await pass_time(clock, 9.5)
        assert (await handle.task()).state is TaskState.RUNNING
        await pass_time(clock, 0.5)
        failed = await failure_of(handle, f"the deadline of task {handle.id} .* passed 0 s ago")
    assert stopped
    assert failed.type_name.endswith("DeadlineExceeded")
    assert (await still.store.history(handle.id))[-1].reason == "deadline passed"


async def test_a_blocking_task_is_abandoned_at_its_deadline_and_its_late_result_is_lost(
    still: Holdfast, clock: ManualClock
) -> None:
    go, over = threading.Event(), threading.Event()
    began = threading.Event()

    @still.task(deadline=10.0)
    def work(ctx: SyncContext) -> str:
        began.set()
        go.wait(PATIENCE)
        try:
            ctx.step("late", lambda: "late")
        finally:
            over.set()
        return "late"

    @still.task
    async def other(ctx: Context) -> str:
        return "not blocked"

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await until(began.is_set)
        clock.advance(10)
        await reaches(handle, TaskState.FAILED)
        assert not over.is_set()
        assert await ended(await still.submit(other)) == "not blocked"
        before = await handle.task()
        go.set()
        await until(over.is_set)
        await asyncio.sleep(0.01)
        assert await handle.task() == before
    assert await still.store.steps(handle.id) == []


async def test_a_waiting_task_fails_at_its_deadline(still: Holdfast, clock: ManualClock) -> None:
    @still.task(deadline=10.0)
    async def work(ctx: Context) -> None:
        await ctx.wait_event("never")

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
        await pass_time(clock, 9.5)
        assert (await handle.task()).state is TaskState.WAITING
        await pass_time(clock, 0.5)
        await failure_of(handle, "deadline")


async def test_a_deadline_holds_across_a_crash(still: Holdfast, clock: ManualClock) -> None:
    @still.task(deadline=10.0)
    async def work(ctx: Context) -> None:
        await ctx.step("one", int)
        await asyncio.sleep(60)

    handle = await still.submit(work)
    worker = await still.worker().__aenter__()
    await pass_time(clock, 6.0)
    await crash(still, worker)
    async with still.worker(grace=0.0):
        await pass_time(clock, 3.5)
        assert (await handle.task()).state is TaskState.RUNNING
        await pass_time(clock, 0.5)
        await failure_of(handle, "passed 0 s ago")


async def test_a_deadline_that_passes_while_the_result_is_recorded_stops_the_verifier(
    still: Holdfast, clock: ManualClock
) -> None:
    asked = False

    @still.task(deadline=10.0)
    async def work(ctx: Context) -> str:
        return "done"

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        nonlocal asked
        asked = True
        await asyncio.sleep(60)
        return True

    send = still.services.committer._send

    async def slowly(commits: Sequence[Commit]) -> list[Verdict]:
        clock.advance(10)
        await settle()
        return await send(commits)

    still.services.committer._send = slowly
    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await failure_of(handle, "deadline of task")
    assert not asked


async def test_the_deadline_is_a_moment_or_a_time_from_now(still: Holdfast, clock: ManualClock) -> None:
    seen = []

    @still.task(deadline=10.0)
    async def work(ctx: Context) -> None:
        seen.append(ctx.deadline)

    now = clock.now()
    for deadline in (None, 20.0, now + timedelta(seconds=30)):
        await still.run(await still.submit(work, deadline=deadline))
    assert seen == [now + timedelta(seconds=seconds) for seconds in (10, 20, 30)]


async def test_a_step_that_takes_too_long_is_stopped_and_tried_again(still: Holdfast, clock: ManualClock) -> None:
    stopped: list[float] = []

    async def slow() -> str:
        try:
            await clock.sleep(1000 if len(stopped) < 2 else 1)
        except asyncio.CancelledError:
            stopped.append(clock.boot())
            raise
        return "in time"

    @still.task
    async def work(ctx: Context) -> str:
        return await ctx.step("slow", slow, timeout=5, retry=Retry(initial=1.0, factor=1.0, jitter="none"))

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await pass_time(clock, 15.0)
        assert await ended(handle) == "in time"
    assert stopped == [5.0, 11.0]


async def test_the_message_of_a_timeout_says_which_and_by_how_much(still: Holdfast, clock: ManualClock) -> None:
    @still.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("slow", clock.sleep, 1000, timeout=5)

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await settle()
        clock.advance(5.25)
        failed = await failure_of(handle, r"the deadline of step 'slow' \(.*\) passed 0\.25 s ago")
    assert failed.type_name.endswith("DeadlineExceeded")
    assert "TimeoutError" in failed.failure.type_names


async def test_a_blocking_step_that_takes_too_long_is_abandoned(still: Holdfast, clock: ManualClock) -> None:
    began, go, tries = threading.Event(), threading.Event(), 0

    def slow() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            began.set()
            go.wait(PATIENCE)
            return "late"
        return "in time"

    @still.task
    async def work(ctx: Context) -> str:
        return await ctx.step("slow", slow, timeout=5, retry=Retry(initial=0.0))

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await until(began.is_set)
        clock.advance(5)
        assert await ended(handle) == "in time"
        go.set()


async def test_a_timeout_error_of_the_code_itself_is_not_a_timeout_of_the_step(quick: Holdfast) -> None:
    async def fail() -> None:
        raise TimeoutError("its own")

    @quick.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("fragile", fail, timeout=60)

    with pytest.raises(TaskFailed, match="TimeoutError: its own"):
        await quick.run(await quick.submit(work))


async def test_a_try_that_was_cut_off_runs_again_with_its_full_timeout(still: Holdfast, clock: ManualClock) -> None:
    """The time before the crash or the drain does not count, nor does the time in which no worker was there."""

    @still.task(retry=ONCE)
    async def work(ctx: Context, effect: str) -> None:
        await ctx.step("slow", clock.sleep, 1000, timeout=20, effect=effect)

    for effect in ("idempotent", "pure"):
        for is_drained in (False, True):
            handle = await still.submit(work, effect)
            worker = await still.worker(grace=0.0).__aenter__()
            await pass_time(clock, 12.0)
            assert (await steps_of(still, handle))["slow"].state is StepState.RUNNING
            await (worker.__aexit__(None, None, None) if is_drained else crash(still, worker))
            clock.advance(100)
            began = clock.now()
            async with still.worker(grace=0.0):
                await pass_time(clock, 19.5)
                assert (await handle.task()).state is TaskState.RUNNING
                await pass_time(clock, 0.5)
                await failure_of(handle, r"timeout of 20 s: the deadline of step 'slow' \(.*\) passed 0 s ago")
            step = (await steps_of(still, handle))["slow"]
            assert (step.attempts, step.started_at) == (2, began)


async def test_a_worker_that_was_away_for_longer_than_a_timeout_calls_the_step_again(
    timed: Holdfast, clock: ManualClock
) -> None:
    """Blocking functions, too; also after several interruptions."""
    calls = 0
    called, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hang() -> str:
        nonlocal calls
        calls += 1
        called.set()
        await go.wait()
        return "answer"

    def block() -> str:
        return asyncio.run_coroutine_threadsafe(hang(), loop).result(PATIENCE)

    @timed.task(retry=ONCE)
    async def work(ctx: Context, is_async: bool) -> str:
        return await ctx.step("llm", hang if is_async else block, timeout=3)

    for is_async in (True, False):
        calls = 0
        go.clear()
        handle = await timed.submit(work, is_async)
        for _ in range(3):
            called.clear()
            async with timed.worker(grace=0.0):
                await until(called.is_set)
                clock.advance(2)
            clock.advance(5)
        called.clear()
        async with timed.worker(grace=0.0):
            await until(called.is_set)
            clock.advance(2)
            await settle()
            go.set()
            assert await ended(handle) == "answer"
        assert calls == 4


async def test_deadlines_on_every_store(hold: Holdfast) -> None:
    @hold.task(retry=ONCE)
    async def work(ctx: Context, how: str) -> None:
        match how:
            case "running":
                await asyncio.sleep(60)
            case "waiting":
                await ctx.wait_event("never")
            case _:
                await ctx.step("slow", asyncio.sleep, 60, timeout=0.05)

    async with hold.worker():
        handles = [
            await hold.submit(work, how, deadline=None if how == "step" else 0.1)
            for how in ("running", "waiting", "step")
        ]
        for handle in handles:
            await failure_of(handle, "deadline")
