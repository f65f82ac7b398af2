"""Queues with a limit: a submission from outside is refused, and a parent waits without a slot."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio

import pytest

from holdfast import Context, Holdfast, ManualClock, QueueFull, QueueSettings, SyncContext, TaskState
from tests.engine.support import reaches, settle, until


async def test_a_submission_beyond_the_limit_is_refused(hold: Holdfast) -> None:
    @hold.task(queue="deploys")
    async def deploy(ctx: Context, service: str) -> str:
        return service

    assert await hold.queue("deploys", max_pending=2) == QueueSettings(name="deploys", max_pending=2)
    first = await hold.submit(deploy, "billing", key="one")
    await hold.submit(deploy, "mail")
    with pytest.raises(QueueFull, match="'deploys' is full: 2"):
        await hold.submit(deploy, "web")
    with pytest.raises(QueueFull):
        await hold.submit_many(deploy, [("web",), ("search",)])
    assert (await hold.submit(deploy, "billing", key="one")).id == first.id
    assert [settings.pending for settings in await hold.queues()] == [2]
    await hold.queue("deploys", max_pending=3)
    await hold.submit(deploy, "web")
    await hold.queue("deploys", max_pending=None)
    handles = await hold.submit_many(deploy, [("a",), ("b",)])
    async with hold.worker():
        assert [await handle.result(timeout=60) for handle in handles] == ["a", "b"]


async def test_who_submits_at_the_same_time_is_not_refused_with_others(hold: Holdfast) -> None:
    """Submissions of one process share a transaction; the full queue refuses its own, and no more than it has to."""

    @hold.task
    async def work(ctx: Context, number: int) -> int:
        return number

    await hold.queue("full", max_pending=3)
    answers = await asyncio.gather(
        *(hold.submit(work, number, queue="full" if number % 2 else "other") for number in range(20)),
        return_exceptions=True,
    )
    refused = [number for number, answer in enumerate(answers) if isinstance(answer, QueueFull)]
    assert refused == [7, 9, 11, 13, 15, 17, 19]
    assert len((await hold.store.find()).items) == 13


async def test_a_parent_waits_without_a_slot_until_there_is_room(hold: Holdfast, clock: ManualClock) -> None:
    """In the store, so that it survives any process; the child is submitted once."""
    go_on = asyncio.Event()

    @hold.task(queue="children")
    async def child(ctx: Context, number: int) -> int:
        await go_on.wait()
        return number

    @hold.task
    async def parent(ctx: Context) -> list[int]:
        children = [await ctx.submit(child, number) for number in range(3)]
        return [await one.result() for one in children]

    await hold.queue("children", max_pending=1)
    handle = await hold.submit(parent)
    async with hold.worker(queues=["default"]):

        async def waits_long() -> bool:
            clock.advance(1)
            await settle()
            task = await handle.task()
            return task.state is TaskState.WAITING and task.owner is None

        await until(waits_long)
        assert [settings.pending for settings in await hold.queues()] == [1]
        async with hold.worker(queues=["children"]):
            go_on.set()

            async def has_ended() -> bool:
                clock.advance(5)
                await settle()
                return (await handle.task()).state.is_terminal

            await until(has_ended)
    assert await handle.result() == [0, 1, 2]
    children = [task for task in (await hold.store.find()).items if task.name == "child"]
    assert len(children) == 3


async def test_a_task_that_is_retried_goes_back_into_a_full_queue(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> str:
        if ctx.attempt == 1:
            await hold.queue("default", max_pending=0)
            raise RuntimeError("again")
        return "done"

    handle = await hold.submit(work)
    async with hold.worker():
        await reaches(handle, TaskState.RUNNING)

        async def has_failed_once() -> bool:
            return (await handle.task()).attempts == 1

        await until(has_failed_once)
    with pytest.raises(QueueFull):
        await hold.submit(work)


def test_blocking_code_sets_a_queue(url: str) -> None:
    hold = Holdfast(url)

    @hold.task
    def work(ctx: SyncContext) -> None: ...

    with hold.sync as h:
        assert h.queue("default", max_pending=0).is_full
        with pytest.raises(QueueFull):
            h.submit(work)
        assert [settings.max_pending for settings in h.queues()] == [0]
