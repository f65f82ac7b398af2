"""Queues that limit how many of their tasks are at work, over all workers together."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, ManualClock, NoPlace, QueueSettings, SyncContext, TaskState, Worker
from holdfast.engine.worker.slots import PATIENCE
from holdfast.model.worker import NewWorker
from tests.engine.attempt.test_residents import LONG, rested, through_a_queue
from tests.engine.support import count_moves, ended, pass_time, reaches, settle, until


async def _deploy_many(hold: Holdfast, *, workers: int) -> int:
    """Work on twenty tasks of a queue of which two may be at work; return how many were at most."""
    now_at_work = most = 0

    @hold.task(queue="deploys")
    async def deploy(ctx: Context, number: int) -> int:
        nonlocal now_at_work, most
        now_at_work += 1
        most = max(most, now_at_work)
        await settle(5)
        now_at_work -= 1
        return number

    assert await hold.queue("deploys", concurrency=2) == QueueSettings(name="deploys", concurrency=2)
    handles = await hold.submit_many(deploy, [(number,) for number in range(20)])
    async with AsyncExitStack() as working:
        for _ in range(workers):
            await working.enter_async_context(hold.worker(concurrency=10, lease=LONG))
        assert [await ended(handle) for handle in handles] == list(range(20))
    assert [settings.working for settings in await hold.queues()] == [0]
    return most


async def test_no_more_tasks_are_at_work_than_the_queue_allows(hold: Holdfast) -> None:
    assert await _deploy_many(hold, workers=3) == 2


async def test_an_end_makes_the_worker_look_for_the_next_task(timed: Holdfast) -> None:
    """Time stands still, so that no poll helps."""
    assert await _deploy_many(timed, workers=1) == 2


async def test_another_queue_is_worked_on_beside_a_full_one(timed: Holdfast) -> None:
    go_on = asyncio.Event()

    @timed.task(queue="deploys")
    async def deploy(ctx: Context) -> None:
        await go_on.wait()

    @timed.task
    async def quick(ctx: Context) -> str:
        return "quick"

    await timed.queue("deploys", concurrency=1)
    deploys = await timed.submit_many(deploy, [()] * 5)
    async with timed.worker(concurrency=10, lease=LONG):
        await reaches(deploys[0], TaskState.RUNNING)
        assert await ended(await timed.submit(quick)) == "quick"
        states = [(await handle.task()).state for handle in deploys]
        assert states == [TaskState.RUNNING, *[TaskState.PENDING] * 4]
        await timed.queue("deploys", concurrency=None)
        for handle in deploys:
            await reaches(handle, TaskState.RUNNING)
        go_on.set()
        for handle in deploys:
            await ended(handle)


@dataclass
class Scene:
    """A task that rests on its worker, and another one that has got its place meanwhile."""

    worker: Worker
    asking: Handle[str]
    seen: list[str]
    beside: Handle[None]
    go_on: asyncio.Event


@asynccontextmanager
async def scene(hold: Holdfast, clock: ManualClock) -> AsyncIterator[Scene]:
    seen: list[str] = []
    go_on = asyncio.Event()

    @hold.task(queue="deploys")
    async def ask(ctx: Context) -> str:
        seen.append("begun")
        await through_a_queue(lambda: ctx.wait_event("answer"))

        async def act() -> str:
            seen.append("acted")
            return "acted"

        return await ctx.step("act", act)

    @hold.task(queue="deploys")
    async def other(ctx: Context) -> None:
        await go_on.wait()

    await hold.queue("deploys", concurrency=1)
    async with hold.worker(concurrency=4, lease=LONG) as worker:
        asking = await hold.submit(ask)
        await rested(asking, clock)
        beside = await hold.submit(other)
        await reaches(beside, TaskState.RUNNING)
        yield Scene(worker, asking, seen, beside, go_on)
    assert [settings.working for settings in await hold.queues()] == [0]


async def test_a_task_that_rested_waits_for_a_place(timed: Holdfast, clock: ManualClock) -> None:
    """It stays where it is, without a slot, and goes on as soon as the other one has ended."""
    async with scene(timed, clock) as on:
        await timed.emit("answer", "yes")
        await pass_time(clock, PATIENCE / 2)
        assert on.seen == ["begun"]
        assert (await on.asking.task()).resting
        await until(lambda: [one.task.id for one in on.worker._host.slots.working] == [on.beside.id])
        on.go_on.set()
        await ended(on.beside)
        assert await ended(on.asking) == "acted"
    assert on.seen == ["begun", "acted"]
    assert await count_moves(timed, on.asking, TaskState.PENDING) == 1


async def test_a_task_that_finds_no_place_goes_back_into_its_queue(timed: Holdfast, clock: ManualClock) -> None:
    """There it waits as the others do, and is replayed when there is a place for it."""
    async with scene(timed, clock) as on:
        await timed.emit("answer", "yes")

        async def is_back() -> bool:
            await pass_time(clock, 1.0)
            task = await on.asking.task()
            return task.state is TaskState.PENDING and task.owner is None

        await until(is_back)
        assert on.seen == ["begun"]
        on.go_on.set()
        await ended(on.beside)
        assert await ended(on.asking) == "acted"
    assert on.seen == ["begun", "begun", "acted"]


async def test_of_many_branches_that_wake_all_go_on_with_one_place(timed: Holdfast, clock: ManualClock) -> None:
    go_on = asyncio.Event()

    @timed.task(queue="deploys")
    async def ask(ctx: Context) -> Any:  # noqa: ANN401
        async def one(number: int) -> str:
            await ctx.wait_event(f"answer {number}")
            return await ctx.step("act", lambda: f"acted {number}", key=f"act {number}")

        return await through_a_queue(lambda: asyncio.gather(*(one(number) for number in range(5))))

    @timed.task(queue="deploys")
    async def other(ctx: Context) -> None:
        await go_on.wait()

    await timed.queue("deploys", concurrency=1)
    async with timed.worker(concurrency=4, lease=LONG):
        asking = await timed.submit(ask)
        await rested(asking, clock)
        beside = await timed.submit(other)
        await reaches(beside, TaskState.RUNNING)
        for number in range(5):
            await timed.emit(f"answer {number}", "yes")
        await pass_time(clock, 2.0)
        go_on.set()
        await ended(beside)
        assert await ended(asking) == [f"acted {number}" for number in range(5)]


async def test_a_resting_task_that_is_adopted_waits_for_a_place(timed: Holdfast, clock: ManualClock) -> None:
    """A worker that finds it among the tasks that it holds works on it no sooner."""
    async with scene(timed, clock) as on:
        attempt = on.worker._host.attempts[on.asking.id]
        attempt.lose_lease("the test takes it away", elsewhere=False)
        await until(lambda: on.asking.id not in on.worker._host.attempts)
        assert (await on.asking.task()).owner == on.worker.id
        await on.worker._host._adopt_strays()
        await on.worker._host._adopt_strays()
        await until(lambda: on.asking.id in on.worker._host.attempts)
        await pass_time(clock, PATIENCE / 2)
        assert on.seen == ["begun"]
        on.go_on.set()
        await ended(on.beside)
        await timed.emit("answer", "yes")
        assert await ended(on.asking) == "acted"


async def test_a_task_run_by_name_waits_for_a_place(hold: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    go_on = asyncio.Event()

    @hold.task
    async def work(ctx: Context, how: str) -> str:
        if how == "waits":
            await go_on.wait()
        return "done"

    await hold.queue("default", concurrency=1)
    first = await hold.submit(work, "waits")
    async with hold.worker():
        await reaches(first, TaskState.RUNNING)
        second = await hold.submit(work, "quick")
        with caplog.at_level(logging.WARNING, logger="holdfast"):
            running = asyncio.create_task(hold.run(second.id))
            await until(lambda: "until then this process waits" in caplog.text)
        assert "queue 'default' allows 1 of its tasks" in caplog.text
        go_on.set()
        async with asyncio.timeout(60):
            assert await running == "done"


def test_blocking_code_limits_a_queue(url: str) -> None:
    hold = Holdfast(url)

    @hold.task
    def work(ctx: SyncContext) -> None: ...

    with hold.sync as h:
        assert h.queue("default", concurrency=1) == QueueSettings(name="default", concurrency=1)
        first, second = h.submit(work), h.submit(work)
        store = hold.store
        h.wait(store.register(NewWorker(id="w")))
        h.wait(store.acquire(first.id, "w"))
        with pytest.raises(NoPlace):
            h.wait(store.acquire(second.id, "w"))
        assert h.queues()[0].is_at_work
