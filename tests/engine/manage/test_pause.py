"""Pauses: of a queue, of a name, of one task; what runs stops at its next step, and goes on where it was."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import Conflict, Context, Handle, Holdfast, ManualClock, NotFound, Pause, SyncContext, TaskState
from tests.engine.support import reaches, settle, until

Function = Callable[[], Coroutine[Any, Any, None]]


class Gates:
    """Steps that say when they begin, and end when they are let through."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._begun: dict[str, asyncio.Event] = {}
        self._open: dict[str, asyncio.Event] = {}

    def __call__(self, name: str) -> Function:
        self._begun.setdefault(name, asyncio.Event())
        self._open.setdefault(name, asyncio.Event())

        async def step() -> None:
            self._begun[name].set()
            await self._open[name].wait()
            self.done.append(name)

        return step

    def __getitem__(self, name: str) -> Function:
        """A step that is let through at once."""
        step = self(name)
        self._open[name].set()
        return step

    async def begins(self, name: str) -> None:
        self(name)
        await self._begun[name].wait()

    def let(self, name: str) -> None:
        self._open[name].set()


async def is_back(handle: Handle[Any]) -> None:
    """Wait until its worker has put the paused task back."""

    async def found() -> bool:
        task = await handle.task()
        return task.state is TaskState.PENDING and task.owner is None

    await until(found)


async def test_a_paused_queue_is_left_alone_by_a_worker_until_it_is_unpaused(hold: Holdfast) -> None:
    @hold.task(queue="deploys")
    async def deploy(ctx: Context) -> str:
        return "deployed"

    @hold.task(queue="other")
    async def other(ctx: Context) -> str:
        return "done"

    paused = await hold.pause("queue:deploys", by="ann", reason="freeze")
    assert [(one.subject, one.by, one.reason) for one in await hold.pauses()] == [("queue:deploys", "ann", "freeze")]
    assert await hold.pause("queue:deploys", by="bob") == paused
    handle, beside = await hold.submit(deploy), await hold.submit(other)
    async with hold.worker():
        assert await beside.result(timeout=60) == "done"
        assert (await handle.task()).state is TaskState.PENDING
        assert await hold.unpause("queue:deploys")
        assert await handle.result(timeout=60) == "deployed"
    assert not await hold.unpause("queue:deploys")


async def test_a_paused_name_waits_in_whatever_queue(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> str:
        return "done"

    @hold.task
    async def beside(ctx: Context) -> None: ...

    await hold.pause("task:work")
    handles = [await hold.submit(work, queue=queue) for queue in ("default", "another")]
    async with hold.worker(queues=["default", "another"]):
        await (await hold.submit(beside)).result(timeout=60)
        assert {(await handle.task()).state for handle in handles} == {TaskState.PENDING}
        await hold.unpause("task:work")
        assert [await handle.result(timeout=60) for handle in handles] == ["done", "done"]


async def test_what_runs_of_a_queue_goes_on(hold: Holdfast) -> None:
    gates = Gates()

    @hold.task
    async def work(ctx: Context) -> str:
        await ctx.step("first", gates("first"))
        await ctx.step("second", gates["second"])
        return "done"

    handle = await hold.submit(work)
    async with hold.worker():
        await gates.begins("first")
        await hold.pause("queue:default")
        gates.let("first")
        assert await handle.result(timeout=60) == "done"
    assert gates.done == ["first", "second"]


async def test_a_running_task_stops_at_its_next_step_and_goes_on_after_that_step(hold: Holdfast) -> None:
    """The step that was under way counts. While the task is paused, its slot is another one's."""
    gates = Gates()

    @hold.task
    async def work(ctx: Context) -> str:
        await ctx.step("first", gates("first"))
        await ctx.step("second", gates["second"])
        return "done"

    @hold.task
    async def other(ctx: Context) -> None: ...

    handle = await hold.submit(work)
    async with hold.worker(concurrency=1):
        await gates.begins("first")
        await hold.pause(handle, by="ann")
        gates.let("first")
        await is_back(handle)
        assert gates.done == ["first"]
        await (await hold.submit(other)).result(timeout=60)
        assert (await hold.store.history(handle.id))[-1].reason == "paused"
        await hold.unpause(handle)
        assert await handle.result(timeout=60) == "done"
    assert gates.done == ["first", "second"]
    assert (await handle.task()).attempts == 0


async def test_a_task_that_is_paused_between_two_steps_learns_of_it_by_the_heartbeat(
    hold: Holdfast, clock: ManualClock
) -> None:
    """No Commit tells its worker before the next step begins."""
    between, go_on = asyncio.Event(), asyncio.Event()
    gates = Gates()

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("first", gates["first"])
        between.set()
        await go_on.wait()
        await ctx.step("second", gates["second"])

    handle = await hold.submit(work)
    async with hold.worker() as worker:
        await between.wait()
        await hold.pause(handle)

        async def has_heard() -> bool:
            clock.advance(1)
            await settle()
            [attempt] = worker._host.attempts.values()
            return attempt.standstill.since is not None

        await until(has_heard)
        go_on.set()
        await is_back(handle)
    assert gates.done == ["first"]


async def test_an_unpause_comes_in_time_for_a_branch_that_stands_still(hold: Holdfast, clock: ManualClock) -> None:
    """The other branch's step is still under way: nothing is handed back, and nothing replays."""
    gates = Gates()

    @hold.task
    async def work(ctx: Context) -> None:
        async def one() -> None:
            await ctx.step("a", gates("a"))
            await ctx.step("b", gates["b"])

        await asyncio.gather(one(), ctx.step("long", gates("long")))

    handle = await hold.submit(work)
    async with hold.worker() as worker:
        await gates.begins("long")
        await gates.begins("a")
        await hold.pause(handle)
        gates.let("a")

        async def stands() -> bool:
            clock.advance(1)
            await settle()
            return [len(one.standstill._standing) for one in worker._host.attempts.values()] == [1]

        await until(stands)
        await hold.unpause(handle)

        async def goes_on() -> bool:
            clock.advance(1)
            await settle()
            return "b" in gates.done

        await until(goes_on)
        gates.let("long")
        await handle.result(timeout=60)
    assert [move.reason for move in await hold.store.history(handle.id)].count("claimed") == 1


async def test_no_step_under_way_is_cut_off(hold: Holdfast) -> None:
    """A branch that stands still waits for the steps of all the others, ``once`` steps and nested ones included."""
    gates = Gates()

    @hold.task
    async def work(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step("inner", gates("inner"))
            await ctx.step("inner later", gates["inner later"])

        async def once() -> None:
            await ctx.step("once", gates("once"), effect="once")
            await ctx.step("after once", gates["after once"], effect="once")

        await asyncio.gather(ctx.step("outer", outer), once())

    handle = await hold.submit(work)
    async with hold.worker():
        await gates.begins("inner")
        await gates.begins("once")
        await hold.pause(handle)
        gates.let("inner")
        await until_done(gates, "inner")
        gates.let("once")
        await is_back(handle)
        assert sorted(gates.done) == ["inner", "once"]
        assert await hold.doubts(handle) == []
        await hold.unpause(handle)
        await handle.result(timeout=60)
    assert sorted(gates.done) == ["after once", "inner", "inner later", "once"]


async def until_done(gates: Gates, name: str) -> None:
    async def found() -> bool:
        return name in gates.done

    await until(found)


async def test_a_blocking_task_stops_as_well(hold: Holdfast) -> None:
    began, go_on, done = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        began.set()
        go_on.wait(60)
        done.append("first")

    @hold.task
    def work(ctx: SyncContext) -> None:
        ctx.step("first", first)
        ctx.step("second", done.append, "second")

    handle = await hold.submit(work)
    async with hold.worker():
        await asyncio.to_thread(began.wait, 60)
        await hold.pause(handle)
        go_on.set()
        await is_back(handle)
        assert done == ["first"]
        await hold.unpause(handle)
        await handle.result(timeout=60)
    assert done == ["first", "second"]


async def test_a_waiting_task_stays_where_it_is_and_is_not_gone_on_with(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> object:
        return await ctx.wait_event("news")

    handle = await hold.submit(work)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        await hold.pause(handle)
        await hold.emit("news", 1)
        await is_back(handle)
        await hold.unpause(handle)
        assert await handle.result(timeout=60) == 1


async def test_a_paused_task_is_cancelled_and_undone(hold: Holdfast) -> None:
    """Also one whose steps have to be undone, for which a worker is needed: the cancel ends the pause."""
    gates, undone = Gates(), list[str]()

    async def undo(result: object) -> None:
        undone.append("first")

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("first", gates("first"), compensate=undo)
        await ctx.step("second", gates["second"])

    handle = await hold.submit(work)
    async with hold.worker():
        await gates.begins("first")
        await hold.pause(handle)
        gates.let("first")
        await is_back(handle)
        await handle.cancel("enough")
        await reaches(handle, TaskState.CANCELLED)
    assert (undone, gates.done) == (["first"], ["first"])
    assert await hold.pauses() == []


async def test_a_run_by_name_waits_and_says_for_what(
    hold: Holdfast, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    @hold.task
    async def work(ctx: Context) -> str:
        return "done"

    handle = await hold.submit(work)
    await hold.pause("queue:default", by="ann")
    with caplog.at_level(logging.WARNING, "holdfast"):
        running = asyncio.create_task(hold.run(handle))

        async def has_said() -> bool:
            clock.advance(1)
            await settle()
            return "hold.unpause('queue:default')" in caplog.text

        await until(has_said)
    assert (await handle.task()).state is TaskState.PENDING
    await hold.unpause("queue:default")

    async def has_ended() -> bool:
        clock.advance(1)
        await settle()
        return running.done()

    await until(has_ended)
    assert await running == "done"


async def test_only_what_is_there_is_paused(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> None: ...

    handle = await hold.submit(work)
    await handle.cancel()
    with pytest.raises(Conflict, match="cancelled"):
        await hold.pause(handle)
    with pytest.raises(NotFound, match="queue:<name>"):
        await hold.pause("quue:deploys")


def test_blocking_code_pauses_too(url: str) -> None:
    hold = Holdfast(url)

    @hold.task
    def work(ctx: SyncContext) -> str:
        return "done"

    with hold.sync as h:
        handle = h.submit(work)
        paused = h.pause(handle, by="ann", reason="later")
        assert isinstance(paused, Pause)
        assert h.pauses() == [paused]
        assert h.unpause(handle)
        with h.worker():
            assert handle.result(timeout=60) == "done"
