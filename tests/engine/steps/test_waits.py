"""Sleeping and waiting for events: in the slot while it is short, without one when it is long, and across crashes."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import (
    Context,
    DeadlineExceeded,
    Holdfast,
    InvalidValue,
    ManualClock,
    SyncContext,
    TaskFailed,
    TaskState,
)
from holdfast.store.clock import SystemClock
from tests.engine.support import count_moves, crash, ended, pass_time, passes, reaches, settle, steps_of, until


async def test_a_short_sleep_keeps_its_slot(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def nap(ctx: Context) -> float:
        began = ctx.now()
        await ctx.sleep(2)
        return (ctx.now() - began).total_seconds()

    handle = await still.submit(nap)
    async with still.worker(grace=0.0) as worker:
        await pass_time(clock, 1.5)
        assert worker.running == 1
        await pass_time(clock, 0.5)
        assert await ended(handle) == 2
    assert await count_moves(still, handle, TaskState.WAITING) == 0


async def test_a_long_sleep_holds_no_slot_and_ends_on_time(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def nap(ctx: Context) -> float:
        began = ctx.now()
        await ctx.sleep(100)
        return (ctx.now() - began).total_seconds()

    @still.task
    async def other(ctx: Context) -> str:
        return "meanwhile"

    handle = await still.submit(nap)
    async with still.worker(concurrency=1, grace=0.0) as worker:
        await reaches(handle, TaskState.WAITING)
        await settle()
        assert worker.running == 0
        assert await ended(await still.submit(other)) == "meanwhile"
        await pass_time(clock, 99.5)
        assert (await handle.task()).state is TaskState.WAITING
        await pass_time(clock, 0.5)
        assert await ended(handle) == 100
    assert (await handle.task()).attempts == 0


@pytest.mark.parametrize("beside", [False, True])
async def test_a_sleep_goes_on_counting_through_a_crash(still: Holdfast, clock: ManualClock, beside: bool) -> None:
    """Also where it could not be suspended, for another branch was busy."""
    woke: list[float] = []

    async def busy() -> None:
        if clock.boot() < 5:
            await clock.sleep(1000)

    @still.task
    async def nap(ctx: Context) -> None:
        async def sleep() -> None:
            await ctx.sleep(20)
            woke.append(clock.boot())

        await asyncio.gather(sleep(), *([ctx.step("busy", busy)] if beside else []))

    handle = await still.submit(nap)
    worker = await still.worker().__aenter__()
    await pass_time(clock, 10.0)
    await crash(still, worker)
    async with still.worker(grace=0.0):
        await pass_time(clock, 15.0)
        await ended(handle)
    assert woke == [20.0]


async def test_an_event_before_the_wait_is_not_lost_and_one_after_it_wakes(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> list[Any]:
        return [await ctx.wait_event("orders"), await ctx.wait_event("orders"), await ctx.wait_event("orders")]

    await hold.emit("orders", "from before the task")
    handle = await hold.submit(work)
    await hold.emit("orders", {"id": 1})
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        await hold.emit("orders", {"id": 2})
        await hold.emit("orders", {"id": 3})
        assert await handle.result(timeout=60) == [{"id": 1}, {"id": 2}, {"id": 3}]


class SteppedClock(SystemClock):
    """The machine's clock, and how far it was set wrong."""

    step = timedelta()

    def now(self) -> datetime:
        return super().now() + self.step


async def test_a_clock_that_steps_loses_no_event_and_brings_back_none(url: str) -> None:
    """Between submission, emit and wait, back and forward: each event since the submission once, in order."""
    clock = SteppedClock()
    hold = Holdfast(url, clock=clock)

    @hold.task
    async def listens(ctx: Context, channel: str) -> list[Any]:
        return [await ctx.wait_event(channel), await ctx.wait_event(channel)]

    @hold.task
    async def delegates(ctx: Context, channel: str) -> list[Any]:
        await ctx.wait_event(f"go {channel}")
        child = await ctx.submit(listens, channel)
        await ctx.progress(1)
        return await child.result()

    async with hold:
        steps = (timedelta(seconds=-2), timedelta(hours=-1), timedelta(hours=1), timedelta(seconds=2))
        for number, step in enumerate(steps):
            channel = f"paid {number}"
            await hold.emit(channel, "from before")
            clock.step += step
            handle, parent = await hold.submit(listens, channel), await hold.submit(delegates, channel)
            await hold.emit(channel, "from before the child")
            clock.step += step
            async with hold.worker(grace=0.0):
                await reaches(handle, TaskState.WAITING)
                await hold.emit(f"go {channel}", None)
                async for _ in parent.events():
                    break
                clock.step += step
                await hold.emit(channel, "first")
                clock.step += step
                await hold.emit(channel, "second")
                assert await ended(handle) == ["from before the child", "first"]
                assert await ended(parent) == ["first", "second"]


async def test_a_new_round_sees_the_events_since_the_submission_again(quick: Holdfast) -> None:
    @quick.task
    async def listens(ctx: Context) -> list[Any]:
        return [ctx.feedback, await ctx.wait_event("news")]

    @listens.verify
    def check(ctx: SyncContext, result: list[Any]) -> bool | str:
        return result[0] is not None or "once more"

    await quick.emit("news", "from before")
    handle = await quick.submit(listens)
    await quick.emit("news", "since")
    assert await quick.run(handle) == ["once more", "since"]


async def test_earlier_events_are_seen_by_who_asks_for_them(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> list[Any]:
        return [await ctx.wait_event("news", earlier=True), await ctx.wait_event("news", earlier=True)]

    await hold.emit("news", "first")
    await hold.emit("news", "second")
    await hold.emit("news", "second", key="twice")
    assert await hold.run(await hold.submit(work)) == ["first", "second"]


async def test_an_event_with_a_key_is_emitted_once(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> list[Any]:
        return [await ctx.wait_event("orders"), await ctx.wait_event("orders")]

    handle = await quick.submit(work)
    await quick.emit("orders", 1, key="a")
    await quick.emit("orders", 1, key="a")
    await quick.emit("orders", 2, key="b")
    assert await quick.run(handle) == [1, 2]


async def test_a_wait_that_times_out_raises_and_replays_the_same(still: Holdfast, clock: ManualClock) -> None:
    seen: list[str] = []

    @still.task
    async def work(ctx: Context) -> str:
        try:
            await ctx.wait_event("answers", timeout=10)
        except DeadlineExceeded as error:
            seen.append(str(error))
        await ctx.wait_event("go")
        return "went on"

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await pass_time(clock, 9.5)
        assert not seen
        await pass_time(clock, 1.0)
        await reaches(handle, TaskState.WAITING)
        await still.emit("answers", "too late")
        await still.emit("go")
        assert await ended(handle) == "went on"
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert "the wait for an event on 'answers'" in seen[0]


async def test_an_event_in_time_beats_the_timeout(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def work(ctx: Context) -> Any:  # noqa: ANN401
        return await ctx.wait_event("answers", timeout=10)

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await pass_time(clock, 5.0)
        await still.emit("answers", "yes")
        assert await ended(handle) == "yes"


async def test_a_timeout_survives_a_crash(still: Holdfast, clock: ManualClock) -> None:
    over: list[datetime] = []

    @still.task
    async def work(ctx: Context) -> None:
        try:
            await ctx.wait_event("answers", timeout=10)
        except DeadlineExceeded:
            over.append(clock.now())

    handle = await still.submit(work)
    began = clock.now()
    for _ in range(3):
        worker = await still.worker().__aenter__()
        await pass_time(clock, 3.0)
        await crash(still, worker)
    async with still.worker(grace=0.0):
        await pass_time(clock, 3.0)
        await ended(handle)
    assert (over[0] - began).total_seconds() == 10


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
async def test_branches_that_wait_on_one_channel_get_one_event_each(still: Holdfast, order: tuple[str, str]) -> None:
    @still.task
    async def work(ctx: Context) -> list[Any]:
        waits = {name: ctx.wait_event("orders", key=name) for name in order}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(waits[name]) for name in order]
        return [task.result() for task in tasks]

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
        await still.emit("orders", 1)
        await settle()
        await reaches(handle, TaskState.WAITING)
        await still.emit("orders", 2)
        got = await ended(handle)
        assert sorted(got) == [1, 2]
    assert await count_moves(still, handle, TaskState.WAITING) <= 3


async def test_a_branch_does_not_get_what_another_got_before_the_crash(still: Holdfast, clock: ManualClock) -> None:
    """The one that still waits replays first; what the other one was given stands only in the journal."""
    first_wait = "early"

    @still.task
    async def work(ctx: Context) -> dict[str, Any]:
        got: dict[str, Any] = {}

        async def wait(name: str) -> None:
            got[name] = await ctx.wait_event("orders", key=name)

        names = ["early", "late"] if first_wait == "early" else ["late", "early"]
        await asyncio.gather(*map(wait, names))
        return got

    handle = await still.submit(work)
    worker = await still.worker().__aenter__()
    await reaches(handle, TaskState.WAITING)
    await still.emit("orders", 1)
    await pass_time(clock, 1.0)
    await passes(still, handle, TaskState.WAITING, times=2)
    await crash(still, worker)
    first_wait = "late"
    async with still.worker(grace=0.0):
        await still.emit("orders", 2)
        assert await ended(handle) == {"early": 1, "late": 2}


async def test_the_journal_tells_when_a_wait_began(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def work(ctx: Context) -> None:
        await asyncio.gather(ctx.wait_event("a"), ctx.wait_event("b"), ctx.sleep(50))

    handle = await still.submit(work)
    began = clock.now()
    async with still.worker(grace=0.0):
        await pass_time(clock, 10.0)
        await still.emit("a")  # the others are replayed
        await pass_time(clock, 10.0)
        await still.emit("b")
        await pass_time(clock, 40.0)
        await ended(handle)
    journal = await steps_of(still, handle)
    assert {step.started_at for step in journal.values()} == {began}
    assert [
        ((journal[key].finished_at or began) - began).total_seconds() for key in ("event:a", "event:b", "sleep")
    ] == [10, 20, 50]


async def test_blocking_functions_wait_without_a_slot_too(hold: Holdfast) -> None:
    unwound: list[str] = []

    @hold.task
    def work(ctx: SyncContext) -> Any:  # noqa: ANN401
        number = ctx.step("number", int, 41)
        try:
            answer = ctx.wait_event("answers", timeout=60)
        finally:
            unwound.append("finally")
        return number + answer

    handle = await hold.submit(work)
    async with hold.worker() as worker:
        await reaches(handle, TaskState.WAITING)
        await until(lambda: worker.running == 0)
        await hold.emit("answers", 1)
        assert await handle.result(timeout=60) == 42
    assert len(unwound) == 2


@pytest.mark.parametrize("duration", [0, -1, float("nan"), True])
async def test_a_sleep_that_makes_no_sense_is_refused(quick: Holdfast, duration: float) -> None:
    @quick.task
    async def work(ctx: Context) -> None:
        await ctx.sleep(duration)

    with pytest.raises(TaskFailed) as failed:
        await quick.run(await quick.submit(work))
    assert failed.value.type_name.endswith(InvalidValue.__name__)
