"""The end of a Holdfast and of its workers: nothing goes on after it, and no caller waits for ever."""

import asyncio
import inspect
import io
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, ManualClock, Retry, StoreClosed, TaskState
from holdfast.engine.runtime import services
from holdfast.engine.runtime.threads import DaemonThreads
from holdfast.engine.worker import host
from holdfast.engine.worker.host import Host
from holdfast.model.worker import WorkerState
from tests.engine.support import PATIENCE, pass_time, settle, until, vanish

Wait = Callable[[Holdfast, Handle[Any]], Awaitable[Any]]


async def events(_: Holdfast, handle: Handle[Any]) -> list[Any]:
    return [event async for event in handle.events()]


WAITS: dict[str, Wait] = {
    "result": lambda _, handle: handle.result(),
    "result in time": lambda _, handle: handle.result(timeout=3600),
    "events": events,
    "run": lambda hold, handle: hold.run(handle),
    "sleep": lambda hold, _: hold.services.alarms.sleep(3600),
}


@pytest.mark.parametrize("name", WAITS)
async def test_waiting_calls_get_store_closed(name: str) -> None:
    """Nothing would ever wake them: hints and alarms end with the store."""
    hold = Holdfast("memory://")

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.sleep(3600)

    async with hold:
        handle = await hold.submit(work, delay=3600)
        waiting = asyncio.create_task(_awaited(WAITS[name](hold, handle)))
        await until(lambda: _alarms_of(hold))
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(waiting, PATIENCE)


async def _awaited(wait: Awaitable[Any]) -> Any:  # noqa: ANN401
    return await wait


def _alarms_of(hold: Holdfast) -> list[Any]:
    return hold.services.alarms._heap


async def test_an_alarm_is_not_set_any_more() -> None:
    hold = Holdfast("memory://")
    async with hold:
        alarms = hold.services.alarms
        alarms.after(3600, pytest.fail)  # and no code waits for this one: it is forgotten
    before = asyncio.all_tasks()
    with pytest.raises(StoreClosed):
        alarms.after(1, pytest.fail)
    assert asyncio.all_tasks() == before


async def test_a_submission_under_way_is_made_before_the_store_closes() -> None:
    hold, before = Holdfast("memory://"), asyncio.all_tasks()

    @hold.task
    async def work(ctx: Context) -> None: ...

    async with hold:
        submitting = asyncio.create_task(hold.submit(work))
        await asyncio.sleep(0)
    assert (await submitting).id
    assert asyncio.all_tasks() == before


async def test_a_submission_to_a_store_that_is_closed_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    hold = Holdfast("memory://")

    @hold.task
    async def work(ctx: Context) -> None: ...

    async with hold:
        await hold.store.close()
        with pytest.raises(StoreClosed):
            await hold.submit(work)
        await hold.store.open()
    assert "sending again" not in caplog.text


# A worker


@pytest.mark.parametrize("when", ["while it gives grace", "before that"])
async def test_a_stop_that_is_cut_short_ends_everything_and_hands_back(when: str) -> None:
    """A timeout around a worker's block: its tasks are free at once, and nothing of it goes on."""
    hold, before, begun = Holdfast("memory://"), asyncio.all_tasks(), asyncio.Event()

    @hold.task
    async def work(_: Context) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with hold:
        handle = await hold.submit(work)
        worker = await hold.worker(lease=600, grace=600).__aenter__()
        await begun.wait()
        with_the_store = asyncio.all_tasks()
        stopping = asyncio.create_task(worker.stop(grace=600))
        if when == "while it gives grace":
            await until(lambda: _drained(hold))
        else:
            await asyncio.sleep(0)
        assert not stopping.done()
        stopping.cancel()
        await asyncio.wait([stopping], timeout=PATIENCE)
        assert stopping.cancelled()
        task = await handle.task()
        assert (task.state, task.owner) == (TaskState.PENDING, None)
        assert not {one.get_name() for one in asyncio.all_tasks() & with_the_store} & {
            "holdfast-heartbeat",
            "holdfast-long-steps",
            "holdfast-worker",
            handle.id,
        }
    assert asyncio.all_tasks() == before


async def test_a_cancel_while_a_worker_stops_still_frees_its_tasks() -> None:
    hold, before, begun, go = Holdfast("memory://"), asyncio.all_tasks(), list[str](), asyncio.Event()

    @hold.task
    async def work(_: Context) -> None:
        await hang(begun, go, stubborn=True, effect_id="none")

    async with hold:
        handle = await hold.submit(work)
        worker = await hold.worker(lease=600).__aenter__()
        await until(lambda: begun)
        stopping = asyncio.create_task(worker.stop(grace=0))
        await until(lambda: _drained(hold))
        await settle()  # it waits for the task to say how it was left
        assert not stopping.done()
        stopping.cancel()
        await asyncio.wait([stopping], timeout=PATIENCE)
        assert stopping.cancelled()
        [left] = await hold.store.workers()
        assert left.state is WorkerState.DEAD
        await hold.store.sweep()
        assert (await handle.task()).owner is None
    assert asyncio.all_tasks() == before


async def _drained(hold: Holdfast) -> bool:
    [worker] = await hold.store.workers()
    return worker.state is WorkerState.DRAINING


async def test_a_store_that_is_closed_under_a_worker_does_not_keep_it_from_stopping() -> None:
    hold, before, begun = Holdfast("memory://"), asyncio.all_tasks(), asyncio.Event()

    @hold.task
    async def work(_: Context) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with hold:
        await hold.submit(work)
        worker = await hold.worker(grace=600).__aenter__()
        await begun.wait()
    await asyncio.wait_for(worker.stop(grace=600), PATIENCE)
    assert asyncio.all_tasks() == before


async def test_an_attempt_that_outlives_its_worker_and_the_store_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host, "HAND_BACK_TIMEOUT", 0.01)
    hold, before, begun, go = Holdfast("memory://"), asyncio.all_tasks(), list[str](), asyncio.Event()

    @hold.task
    async def work(_: Context) -> None:
        await hang(begun, go, stubborn=True, effect_id="none")

    async with hold:
        await hold.submit(work)
        async with hold.worker(concurrency=1, grace=0):
            await until(lambda: begun)
    assert begun
    go.set()
    await until(lambda: asyncio.all_tasks() == before)
    assert "Exception in callback" not in caplog.text


async def test_a_defect_in_the_heartbeat_is_mentioned(
    still: Holdfast, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Host) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(Host, "_beat_once", fail)
    async with still.worker(lease=3, label="anna"):
        await pass_time(clock, 2)
        await until(lambda: "holdfast-heartbeat failed" in caplog.text)
    assert "a defect" in caplog.text


# What is left to itself


async def hang(begun: list[str], go: asyncio.Event, *, stubborn: bool, effect_id: str) -> None:
    begun.append(effect_id)
    try:
        await asyncio.Event().wait()
    finally:
        if stubborn:
            await go.wait()
        begun.clear()


@pytest.mark.parametrize("depth", [0, 6])
async def test_a_call_that_is_left_behind_while_the_store_closes_is_stopped(depth: int) -> None:
    """It takes a task of a task some turns to notice that it is over, and to leave its call behind."""
    hold, before, begun, go = Holdfast("memory://"), asyncio.all_tasks(), list[str](), asyncio.Event()

    async def pay(effect_id: str) -> None:
        await hang(begun, go, stubborn=False, effect_id=effect_id)

    async def nested(ctx: Context, depth: int) -> None:
        if depth == 0:
            await ctx.step("pay", pay, effect="once")
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(nested(ctx, depth - 1))

    @hold.task
    async def work(ctx: Context) -> None:
        await nested(ctx, depth)

    async with hold:
        await hold.submit(work)
        worker = await hold.worker().__aenter__()
        await until(lambda: begun)
        await vanish(worker)
    await until(lambda: not begun)
    await until(lambda: asyncio.all_tasks() == before)


async def test_a_call_that_does_not_end_does_not_keep_the_store_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(services, "SHUTDOWN_TIMEOUT", 0.01)
    hold, begun, go = Holdfast("memory://"), list[str](), asyncio.Event()

    async def pay(effect_id: str) -> None:
        await hang(begun, go, stubborn=True, effect_id=effect_id)

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("pay", pay, effect="once", retry=Retry(max_attempts=1))

    async def leave_it_behind() -> None:
        async with hold:
            await hold.submit(work)
            worker = await hold.worker().__aenter__()
            await until(lambda: begun)
            await vanish(worker)

    await asyncio.wait_for(leave_it_behind(), PATIENCE)
    assert begun
    assert "was cancelled but does not end" in caplog.text
    go.set()
    await until(lambda: not begun)


async def test_a_close_that_is_cut_short_closes_everything_all_the_same() -> None:
    hold, before, begun, go = Holdfast("memory://"), asyncio.all_tasks(), list[str](), asyncio.Event()

    async def pay(effect_id: str) -> None:
        await hang(begun, go, stubborn=True, effect_id=effect_id)

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("pay", pay, effect="once")

    await hold.__aenter__()
    store, alarms = hold.store, hold.services.alarms
    await hold.submit(work)
    worker = await hold.worker().__aenter__()
    await until(lambda: begun)
    await vanish(worker)
    closing = asyncio.create_task(hold.__aexit__(None, None, None))
    await settle()  # it waits for the call, which does not end
    assert not closing.done()
    closing.cancel()
    await asyncio.wait([closing], timeout=PATIENCE)
    assert closing.cancelled()
    with pytest.raises(StoreClosed):
        alarms.after(1, pytest.fail)
    with pytest.raises(StoreClosed):
        await store.workers()
    go.set()
    await until(lambda: asyncio.all_tasks() == before)


# Threads


class Thread:
    """A blocking function that returns this once it may."""

    def __init__(self, result: object) -> None:
        self.result = result
        self.began, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> object:
        self.began.set()
        assert self.may_end.wait(PATIENCE)
        return self.result


async def more() -> None:
    """Do the rest on the loop."""


def is_closed(made: Coroutine[Any, Any, None] | io.BytesIO) -> bool:
    if isinstance(made, io.BytesIO):
        return made.closed
    return inspect.getcoroutinestate(made) == inspect.CORO_CLOSED


async def test_an_answer_in_the_turn_of_the_cancel_is_not_lost() -> None:
    """The thread has finished: a caller that was cancelled meanwhile still gets the result."""
    threads, reports, thread = DaemonThreads(), list[Any](), Thread("paid")
    waiting = asyncio.create_task(threads.run(thread, late=lambda result, error: reports.append((result, error))))
    await until(thread.began.is_set)
    thread.may_end.set()
    block_until(lambda: bool(threads._idle))
    asyncio.get_running_loop().call_soon(waiting.cancel)  # beside the answer, which is there and not yet read
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert reports == [("paid", None)]


@pytest.mark.parametrize("make", [more, io.BytesIO])
async def test_what_an_abandoned_thread_returns_is_closed(
    make: Callable[[], Coroutine[Any, Any, None] | io.BytesIO],
) -> None:
    threads, made = DaemonThreads(), make()
    thread = Thread(made)
    waiting = asyncio.create_task(threads.run(thread))
    await until(thread.began.is_set)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    thread.may_end.set()
    await until(lambda: is_closed(made))


def test_what_a_thread_returns_to_a_loop_that_is_closed_is_closed() -> None:
    threads, made = DaemonThreads(), more()
    thread = Thread(made)

    async def leave() -> None:
        waiting = asyncio.create_task(threads.run(thread))
        await until(thread.began.is_set)
        waiting.cancel()

    asyncio.run(leave())
    thread.may_end.set()
    block_until(lambda: is_closed(made))


def block_until(condition: Callable[[], bool]) -> None:
    """Block this thread, and the loop on it, until a thread has come so far."""
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)
