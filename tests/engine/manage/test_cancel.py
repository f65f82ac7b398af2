"""Cancelling a task, wherever it is, and its children with it."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import threading
from collections.abc import Sequence

import pytest

from holdfast import Context, Holdfast, ManualClock, NotFound, SyncContext, TaskCancelled, TaskState
from holdfast.model.commit import Commit, Verdict
from holdfast.model.queries import Loaded
from tests.engine.support import PATIENCE, moves_of, pass_time, reaches, settle, until


async def test_a_pending_task_is_cancelled_at_once(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> None: ...

    handle = await hold.submit(work)
    assert await handle.cancel("not needed") is TaskState.CANCELLED
    with pytest.raises(TaskCancelled, match="not needed"):
        await handle.result(timeout=60)
    with pytest.raises(TaskCancelled, match="not needed"):
        await hold.run(handle)


async def test_a_waiting_task_is_cancelled_at_once(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.wait_event("never")

    handle = await hold.submit(work)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        assert await hold.cancel(handle) is TaskState.CANCELLED
    assert (await handle.task()).owner is None


async def test_a_running_task_is_stopped_where_it_awaits(hold: Holdfast) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def forever() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("forever", forever)

    handle = await hold.submit(work)
    async with hold.worker():
        await began.wait()
        assert await handle.cancel("enough") is TaskState.RUNNING
        with pytest.raises(TaskCancelled, match="enough"):
            await handle.result(timeout=60)
        assert stopped.is_set()
    assert (await moves_of(hold, handle))[-1] == ("running", "cancelled")


async def test_a_cancel_seen_by_a_commit_stops_code_that_never_asks_again(still: Holdfast) -> None:
    @still.task
    async def work(ctx: Context) -> None:
        await still.cancel(ctx.task_id, "by its own commit")
        await ctx.step("one", int)
        await asyncio.sleep(60)  # no heartbeat comes, for time stands still

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.CANCELLED)


async def test_code_that_ends_right_after_the_commit_that_saw_the_cancel_is_cancelled_cleanly(still: Holdfast) -> None:
    @still.task
    async def work(ctx: Context) -> str:
        await still.cancel(ctx.task_id, "by its own commit")
        await ctx.step("one", int)
        return "the end"

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.CANCELLED)


async def test_a_blocking_task_is_left_to_its_thread_and_can_do_nothing_more(quick: Holdfast) -> None:
    began, go, over = threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []

    @quick.task
    def work(ctx: SyncContext) -> None:
        try:
            began.set()
            go.wait(PATIENCE)
            ctx.step("late", seen.append, "ran")
        except BaseException as error:
            seen.append(type(error).__name__)
            raise
        finally:
            over.set()

    handle = await quick.submit(work)
    async with quick.worker():
        await until(began.is_set)
        await handle.cancel()
        await reaches(handle, TaskState.CANCELLED)
        assert not over.is_set()
        go.set()
        await until(over.is_set)
    assert seen == ["HoldfastError"]
    assert await quick.store.steps(handle.id) == []


async def test_children_are_cancelled_with_their_parent(hold: Holdfast) -> None:
    @hold.task
    async def grandchild(ctx: Context) -> None:
        await ctx.wait_event("never")

    @hold.task
    async def child(ctx: Context) -> None:
        await (await ctx.submit(grandchild)).result()

    @hold.task
    async def parent(ctx: Context, suspended: bool) -> None:
        children = [await ctx.submit(child) for _ in range(3)]
        if not suspended:
            await asyncio.sleep(60)
        await asyncio.gather(*(one.result() for one in children))

    async with hold.worker():
        for suspended in (True, False):
            handle = await hold.submit(parent, suspended)
            busy = 0 if suspended else 1

            async def all_wait(busy: int = busy) -> bool:
                counts = await hold.store.count()
                return counts.get(TaskState.WAITING) == 7 - busy and counts.get(TaskState.RUNNING, 0) == busy

            await until(all_wait)
            await handle.cancel("the whole tree")
            await reaches(handle, TaskState.CANCELLED)

            async def all_cancelled() -> bool:
                # One that was woken by the end of its own child may be running for a moment, until it sees the request.
                return set(await hold.store.count()) == {TaskState.CANCELLED}

            await until(all_cancelled)


async def test_a_cancel_while_the_task_is_being_suspended_is_not_lost(still: Holdfast) -> None:
    """The request comes after the look that found it quiescent, and before the Commit that suspends it."""

    @still.task
    async def work(ctx: Context) -> None:
        await ctx.wait_event("never")

    handle = await still.submit(work)
    send = still.services.committer._send

    async def cancel_first(commits: Sequence[Commit]) -> list[Verdict]:
        still.services.committer._send = send
        assert await still.cancel(handle, "just now") is TaskState.RUNNING
        return await send(commits)

    still.services.committer._send = cancel_first
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.CANCELLED)
    assert ("running", "waiting") in await moves_of(still, handle)


async def test_a_cancel_of_a_task_that_has_ended_changes_nothing(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> int:
        return 7

    handle = await hold.submit(work)
    assert await hold.run(handle) == 7
    before = await handle.task()
    assert await handle.cancel() is TaskState.COMPLETED
    assert await handle.task() == before


async def test_a_cancel_of_an_unknown_task_is_an_error(hold: Holdfast) -> None:
    with pytest.raises(NotFound):
        await hold.cancel("no-such-task")


async def test_the_heartbeat_tells_a_worker_that_never_commits(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def work(ctx: Context) -> None:
        await asyncio.sleep(60)

    handle = await still.submit(work)
    async with still.worker(grace=0.0, lease=30):
        await reaches(handle, TaskState.RUNNING)
        await handle.cancel("learned from the heartbeat")
        await settle()
        await pass_time(clock, 10.5)
        await reaches(handle, TaskState.CANCELLED)


async def test_a_task_that_is_cancelled_before_its_worker_loads_it_does_not_run(still: Holdfast) -> None:
    runs = 0

    @still.task
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await ctx.wait_event("go")

    handle = await still.submit(work)
    load = still.services.store.load

    async def cancel_then_load(task_id: str) -> Loaded:
        await still.cancel(handle)
        return await load(task_id)

    still.services.store.load = cancel_then_load  # type: ignore[assignment, method-assign]
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
        await still.emit("go")
        await reaches(handle, TaskState.CANCELLED)
    assert runs == 1


async def test_code_that_awaits_something_cancelled_fails_and_is_not_lost(quick: Holdfast) -> None:
    """The task was not cancelled: its own code let a CancelledError out."""

    @quick.task
    async def work(ctx: Context) -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        await inner

    handle = await quick.submit(work)
    async with quick.worker():
        await reaches(handle, TaskState.FAILED)
    assert "CancelledError" in str((await handle.task()).error)
