"""Code that catches the signal which stops it, and goes on: it is set aside alone, and its worker goes on."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import (
    Context,
    Handle,
    Holdfast,
    Machine,
    ManualClock,
    StepFailed,
    SyncContext,
    TaskFailed,
    TaskState,
)
from holdfast.engine.api.machine import visit
from holdfast.engine.attempt.journal import IGNORED_STOP
from holdfast.engine.attempt.stuck_code import MANY_CALLS, STUCK, UNWIND_WITHIN, dead_end
from holdfast.engine.worker import host
from tests.engine.support import ended, pass_time, reaches, settle, steps_of, until

Code = Callable[[Any], Any]
CANCELLED = TaskState.CANCELLED

caught = [0]
"""So that ``except`` blocks have something to do."""


async def one() -> int:
    return 1


async def over_and_over(ctx: Context) -> None:
    while True:
        try:
            await ctx.wait_event("go")
        except:  # noqa: E722 - the subject of these tests
            caught[0] += 1


async def in_a_branch(ctx: Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(over_and_over(ctx))
        group.create_task(ctx.wait_event("other"))


async def asleep(_ctx: Context | None) -> None:
    while True:
        try:
            await asyncio.sleep(0)
        except BaseException:  # noqa: BLE001
            caught[0] += 1


async def waits_for_nothing(_ctx: Context) -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:  # noqa: BLE001
            caught[0] += 1


async def inside_a_step(ctx: Context) -> None:
    await ctx.step("inside", asleep, ctx)


async def inside_once(ctx: Context) -> None:
    await ctx.step("inside", asleep, None, effect="once")


async def steps(ctx: Context) -> None:
    while True:
        try:
            await ctx.step("one", one)
            await asyncio.sleep(0)
        except BaseException:  # noqa: BLE001
            caught[0] += 1


def blocking(ctx: SyncContext) -> None:
    while True:
        with suppress(BaseException):
            ctx.wait_event("go")


async def count_ignored(hold: Holdfast, handle: Handle[Any]) -> int:
    return sum(step.kind == IGNORED_STOP for step in (await steps_of(hold, handle)).values())


@pytest.mark.parametrize("code", [over_and_over, in_a_branch, blocking])
async def test_a_suspension_that_is_caught_three_times_is_poison(hold: Holdfast, code: Code) -> None:
    bad = hold.task(name="bad")(code)

    @hold.task
    async def innocent(ctx: Context) -> int:
        return await ctx.step("one", one)

    async with hold.worker(grace=0.0, lease=2.0):
        handle = await hold.submit(bad)
        for times in range(1, 4):
            await until(partial(_has_ignored, hold, handle, times))
            assert await ended(await hold.submit(innocent)) == 1
            await hold.emit("go")
        with pytest.raises(TaskFailed, match=r"continued, 3 times, .*test_stuck_code.py:\d+ in .*`except Exception:`"):
            await ended(handle)
        error = (await handle.task()).error
        assert isinstance(error, dict)
        assert (error["type"], error["reason"]) == ("Poison", "poison")
        # A person changed the code, and may have it go on.
        await hold.resume(handle.id)
        await until(lambda: _has_ignored(hold, handle, 4))
        await handle.cancel()
    names = [str(task.get_coro()) for task in asyncio.all_tasks()]
    assert not [name for name in names if "Attempt.run" in name or "over_and_over" in name]
    if code is blocking:
        stuck = [thread.name for thread in threading.enumerate() if handle.id in thread.name]
        assert len(stuck) == 4
        assert stuck[0] == f"{STUCK}: task bad {handle.id}"


async def _has_ignored(hold: Holdfast, handle: Handle[Any], times: int) -> bool:
    return await count_ignored(hold, handle) == times


@pytest.mark.parametrize("code", [over_and_over, in_a_branch, asleep, waits_for_nothing, inside_a_step, steps])
async def test_a_cancel_that_is_caught_is_recorded_all_the_same(
    still: Holdfast, clock: ManualClock, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    @still.task
    async def work(ctx: Context) -> None:
        begun.set()
        await code(ctx)

    async with still.worker(grace=0.0):
        handle = await still.submit(work)
        await begun.wait()
        await settle()
        await handle.cancel()
        await pass_time(clock, UNWIND_WITHIN + 10.0, by=5.0)
        await reaches(handle, CANCELLED)
    assert "its code was stopped, but" in caplog.text  # caught the signal, or has not ended yet
    assert "at test_stuck_code.py" in caplog.text


async def test_a_once_call_that_catches_its_cancel_is_in_doubt(still: Holdfast, clock: ManualClock) -> None:
    begun = asyncio.Event()

    async def pay() -> None:
        begun.set()
        await asleep(None)

    @still.task
    async def work(ctx: Context) -> None:
        await ctx.step("pay", pay, effect="once", timeout=20.0)

    async with still.worker(grace=0.0):
        handle = await still.submit(work)
        await begun.wait()
        await pass_time(clock, 20.0 + UNWIND_WITHIN + 10.0, by=5.0)
        await reaches(handle, TaskState.WAITING)
        [doubt] = await still.doubts()
        assert doubt.effect.step_key == "pay"
        await still.resolve(doubt.effect.effect_id, "abandon", by="a test")
        with pytest.raises(TaskFailed):
            await ended(handle)


async def test_a_timeout_that_is_caught_fails_the_step(still: Holdfast, clock: ManualClock) -> None:
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await waits_for_nothing(None)  # type: ignore[arg-type]

    @still.task
    async def work(ctx: Context) -> str:
        with pytest.raises(StepFailed, match="not over within its timeout of 5 s"):
            await ctx.step("endless", endless, timeout=5.0)
        await ctx.step("one", one)
        return "went on"

    async with still.worker(grace=0.0):
        handle = await still.submit(work)
        await begun.wait()
        await pass_time(clock, 5.0 + UNWIND_WITHIN + 10.0, by=5.0)
        assert await ended(handle) == "went on"


async def test_a_states_timeout_that_is_caught_fails_the_visit(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit, "UNWIND_WITHIN", 0.01)
    machine: Machine[None] = Machine("stuck", initial="begin", transitions={"begin": ["end"]}, final=["end"])

    @machine.state("begin", timeout=0.01)
    async def begin(ctx: Context, _data: None) -> str:
        await asleep(ctx)
        return "end"

    stuck = quick.register(machine)
    async with quick.worker(grace=0.0):
        with pytest.raises(TaskFailed, match="state 'begin'"):
            await ended(await quick.submit(stuck, None))


async def test_a_worker_leaves_code_that_does_not_stop(quick: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HAND_BACK_TIMEOUT", 0.05)
    begun = asyncio.Event()
    slow = quick.task(name="slow")(asleep)
    deaf = quick.task(name="deaf")(steps)

    @quick.task
    def thread(ctx: SyncContext) -> None:
        begun.set()
        blocking(ctx)

    async with quick.worker(grace=0.0):
        handles = [await quick.submit(slow), await quick.submit(deaf), await quick.submit(thread)]
        await begun.wait()
        await until(lambda: _all_in(handles, TaskState.RUNNING, TaskState.WAITING))
    for handle in handles:
        assert (await handle.task()).state in {TaskState.PENDING, TaskState.WAITING}
    # Only what called ctx in vain has proven that it catches its stop; the other code may be slow.
    assert await count_ignored(quick, handles[0]) == 0
    assert await count_ignored(quick, handles[1]) == 1


async def _all_in(handles: list[Handle[Any]], *states: TaskState) -> bool:
    return all([(await handle.task()).state in states for handle in handles])


async def test_a_branch_that_outlives_its_task_does_not_spin(quick: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    calls, branches = 0, []

    async def poll(ctx: Context) -> None:
        nonlocal calls
        while True:
            with suppress(Exception):
                calls += 1
                await ctx.step("poll", one)

    @quick.task
    async def work(ctx: Context) -> str:
        async def start() -> str:
            branches.append(asyncio.create_task(poll(ctx)))  # of a try that is over in a moment
            return "started"

        await ctx.step("start", start)
        branches.append(asyncio.create_task(poll(ctx)))
        return "done"

    async with quick.worker(grace=0.0):
        assert await ended(await quick.submit(work)) == "done"
        await until(lambda: all(branch.done() for branch in branches))
    assert calls <= 2 * MANY_CALLS + 10
    assert "went on calling ctx after its end at test_stuck_code.py" in caplog.text


async def test_a_saga_is_not_held_up_by_code_that_catches_everything(still: Holdfast, clock: ManualClock) -> None:
    undone = []

    async def undo(_result: int) -> None:
        undone.append(1)

    async def again_and_again(ctx: Context) -> None:
        await ctx.step("done", one, compensate=undo)
        await over_and_over(ctx)

    work = still.task(again_and_again)
    async with still.worker(grace=0.0):
        handle = await still.submit(work)
        await reaches(handle, TaskState.WAITING)
        await handle.cancel()
        await pass_time(clock, 60.0, by=5.0)
        await reaches(handle, CANCELLED)
    assert undone == [1]


async def test_clean_up_has_its_time(still: Holdfast, clock: ManualClock) -> None:
    """A stop is not ignored by code that closes things, even if it calls ctx in vain on the way."""
    cleaned = []

    @still.task
    async def work(ctx: Context) -> None:
        try:
            await ctx.wait_event("go")
        finally:
            for _ in range(3):
                with suppress(BaseException):
                    await ctx.step("in vain", one)
            await asyncio.sleep(0)
            cleaned.append(1)

    async with still.worker(grace=0.0):
        handle = await still.submit(work, deadline=timedelta(days=1))
        await reaches(handle, TaskState.WAITING)
        await until(lambda: cleaned == [1])
        await pass_time(clock, 60.0, by=10.0)
        assert await count_ignored(still, handle) == 0


async def test_poison_is_not_undone(quick: Holdfast) -> None:
    undone = []

    async def undo(_result: int) -> None:
        undone.append(1)

    async def again_and_again(ctx: Context) -> None:
        await ctx.step("done", one, compensate=undo)
        await over_and_over(ctx)

    async with quick.worker(grace=0.0):
        handle = await quick.submit(quick.task(again_and_again))
        for times in range(1, 4):
            await until(partial(_has_ignored, quick, handle, times))
            await quick.emit("go")
        with pytest.raises(TaskFailed, match="3 times"):
            await ended(handle)
    assert undone == []


async def test_an_asyncio_task_that_is_cancelled_while_it_is_set_aside_ends_quietly() -> None:
    loop, errors = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    own = asyncio.current_task()
    assert own is not None
    branch = asyncio.create_task(dead_end(own))
    await asyncio.sleep(0)
    branch.cancel()  # before it was taken out of there, as a group does whose other branch has failed
    with pytest.raises(asyncio.CancelledError):
        await branch
    await settle()
    assert not errors
