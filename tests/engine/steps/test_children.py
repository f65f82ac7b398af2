"""Fan out, fan in."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio

import pytest

from holdfast import (
    Context,
    Holdfast,
    ManualClock,
    Retry,
    SyncContext,
    TaskCancelled,
    TaskFailed,
    TaskFilter,
    TaskState,
)
from tests.engine.support import count_moves, crash, ended, reaches, settle, steps_of, until

ONCE = Retry(max_attempts=1)


async def test_a_parent_gets_its_childs_result_and_holds_no_slot_meanwhile(hold: Holdfast) -> None:
    @hold.task
    async def child(ctx: Context, number: int) -> tuple[int, str]:
        return number, "answer"

    @hold.task
    async def parent(ctx: Context) -> tuple[int, str]:
        return await (await ctx.submit(child, 42)).result()

    handle = await hold.submit(parent)
    async with hold.worker(concurrency=1):  # one slot: the parent has to give it to its child
        assert await handle.result(timeout=60) == (42, "answer")
    page = await hold.store.find(TaskFilter(parent_id=handle.id))
    assert [task.name for task in page.items] == ["child"]


async def test_a_blocking_parent_waits_for_its_children_too(quick: Holdfast) -> None:
    @quick.task
    def child(ctx: SyncContext, number: int) -> int:
        return number * 2

    @quick.task
    def parent(ctx: SyncContext) -> int:
        children = [ctx.submit(child, n) for n in range(5)]
        return sum(one.result() for one in children)

    handle = await quick.submit(parent)
    async with quick.worker(concurrency=1):
        assert await handle.result(timeout=60) == 20


async def test_a_childs_failure_is_raised_and_replays(quick: Holdfast) -> None:
    @quick.task(retry=ONCE)
    async def child(ctx: Context) -> None:
        raise ConnectionError("gone")

    @quick.task(retry=Retry(initial=0.0))
    async def parent(ctx: Context) -> str:
        try:
            await (await ctx.submit(child)).result()
        except TaskFailed as failed:
            if ctx.attempt == 1:
                raise TimeoutError from None
            return f"{failed.type_name}: {failed.message} {len(failed.failure.tries)}"
        return "no"

    handle = await quick.submit(parent)
    async with quick.worker():
        assert await handle.result(timeout=60) == "ConnectionError: gone 1"
    assert (await quick.store.count())[TaskState.FAILED] == 1  # submitted once


async def test_a_childs_cancel_is_raised_with_its_reason(quick: Holdfast) -> None:
    ids: list[str] = []

    @quick.task(queue="nowhere")
    async def child(ctx: Context) -> None: ...

    @quick.task
    async def parent(ctx: Context) -> str:
        waiting = await ctx.submit(child)
        ids.append(waiting.id)
        try:
            await waiting.result()
        except TaskCancelled as cancelled:
            return cancelled.reason
        return "no"

    handle = await quick.submit(parent)
    async with quick.worker(queues=["default"]):
        await reaches(handle, TaskState.WAITING)
        await quick.cancel(ids[0], "not needed")
        assert await handle.result(timeout=60) == "not needed"


async def test_a_child_is_submitted_once_whatever_happens_to_its_parent(still: Holdfast) -> None:
    @still.task(queue="children")
    async def child(ctx: Context) -> int:
        return 7

    @still.task
    async def parent(ctx: Context) -> int:
        return await (await ctx.submit(child)).result()

    handle = await still.submit(parent)
    for _ in range(3):
        worker = await still.worker(queues=["default"]).__aenter__()
        await reaches(handle, TaskState.WAITING)
        await crash(still, worker)
    assert (await still.store.count()) == {TaskState.PENDING: 1, TaskState.WAITING: 1}
    async with still.worker(grace=0.0):
        assert await ended(handle) == 7


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_thousand_children_are_joined_with_a_few_wake_ups(quick: Holdfast, grouped: bool) -> None:
    @quick.task
    async def child(ctx: Context, number: int) -> int:
        return number

    @quick.task
    async def parent(ctx: Context) -> int:
        children = [await ctx.submit(child, n) for n in range(1000)]
        if not grouped:
            return sum(await asyncio.gather(*(one.result() for one in children)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.result()) for one in children]
        return sum(task.result() for task in tasks)

    handle = await quick.submit(parent)
    async with quick.worker(concurrency=100):
        assert await handle.result(timeout=60) == sum(range(1000))
    assert await count_moves(quick, handle, TaskState.WAITING) <= 5


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_parent_that_needs_all_its_children_is_woken_by_the_last(still: Holdfast, grouped: bool) -> None:
    @still.task
    async def child(ctx: Context, number: int) -> int:
        await ctx.wait_event(f"go {number}")
        return number

    @still.task
    async def parent(ctx: Context) -> int:
        children = [await ctx.submit(child, n) for n in range(5)]
        if not grouped:
            return sum(await asyncio.gather(*(one.result() for one in children)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.result()) for one in children]
        return sum(task.result() for task in tasks)

    async def all_wait() -> bool:
        return await still.store.count() == {TaskState.WAITING: 6}

    handle = await still.submit(parent)
    async with still.worker(grace=0.0):
        await until(all_wait)
        for number in range(5):
            await still.emit(f"go {number}")
            await settle()
        assert await ended(handle) == 10
    assert await count_moves(still, handle, TaskState.WAITING) == 1


async def test_the_first_of_several_children_wakes_who_waits_for_any(still: Holdfast, clock: ManualClock) -> None:
    @still.task(queue="fast")
    async def fast(ctx: Context) -> str:
        return "fast"

    @still.task(queue="slow")
    async def slow(ctx: Context) -> str:
        return "slow"

    @still.task
    async def parent(ctx: Context) -> str:
        waits = [asyncio.create_task((await ctx.submit(task)).result()) for task in (slow, fast)]
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()

    handle = await still.submit(parent)
    async with still.worker(grace=0.0, queues=["default", "fast"]):
        assert await ended(handle) == "fast"


async def test_children_of_children(quick: Holdfast) -> None:
    @quick.task
    async def tree(ctx: Context, depth: int) -> int:
        if not depth:
            return 1
        children = [await ctx.submit(tree, depth - 1) for _ in range(3)]
        return sum(await asyncio.gather(*(child.result() for child in children)))

    handle = await quick.submit(tree, 3)
    async with quick.worker(concurrency=2):
        assert await handle.result(timeout=60) == 27


async def test_a_child_that_is_not_waited_for_goes_on_after_its_parent(quick: Holdfast) -> None:
    done: list[str] = []

    @quick.task
    async def child(ctx: Context) -> None:
        done.append(ctx.task_id)

    @quick.task
    async def parent(ctx: Context) -> str:
        return (await ctx.submit(child, delay=0.02)).id

    handle = await quick.submit(parent)
    async with quick.worker():
        child_id = await handle.result(timeout=60)
        await until(lambda: done == [child_id])


async def test_the_journal_has_the_submission_and_the_result(still: Holdfast) -> None:
    @still.task
    async def child(ctx: Context) -> None: ...

    @still.task
    async def parent(ctx: Context) -> None:
        await (await ctx.submit(child, key="mine")).result()
        await (await ctx.submit(child)).result()

    handle = await still.submit(parent)
    async with still.worker(grace=0.0):
        await ended(handle)
        await settle()
    assert {key: step.kind for key, step in (await steps_of(still, handle)).items()} == {
        "mine": "child",
        "mine:result": "result",
        "submit:child": "child",
        "submit:child:result": "result",
    }
