"""hold.sync: the same engine, from code that blocks."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import contextvars
import gc
import inspect
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import assert_type

import pytest

from holdfast import (
    Context,
    DeadlineExceeded,
    Handle,
    Holdfast,
    HoldfastError,
    InvalidURL,
    InvalidValue,
    KeyConflict,
    Machine,
    NotFound,
    StoreClosed,
    SyncContext,
    SyncHandle,
    SyncHoldfast,
    SyncWorker,
    TaskCancelled,
    TaskDefinition,
    TaskFailed,
    TaskState,
    Worker,
)
from holdfast.model.task import JsonValue


def with_tasks(url: str) -> tuple[Holdfast, TaskDefinition[[str], str], TaskDefinition[[str], JsonValue]]:
    hold = Holdfast(url)

    @hold.task
    async def greet(ctx: Context, name: str) -> str:
        await ctx.progress(1, 1, name)
        return f"hello {name}"

    @hold.task
    def wait(ctx: SyncContext, channel: str) -> JsonValue:
        return ctx.wait_event(channel)

    return hold, greet, wait


def test_a_script_submits_works_and_waits(url: str) -> None:
    hold, greet, wait = with_tasks(url)
    with hold.sync as h:
        handle = h.submit(greet, "you", key="first")
        assert h.submit(greet, "you", key="first").id == handle.id
        waiting = h.submit(wait, "news")
        with h.worker(concurrency=4) as worker:
            assert worker.id
            assert handle.result(timeout=60) == "hello you"
            h.emit("news", {"it": "works"})
            assert waiting.result(timeout=60) == {"it": "works"}
            assert [one.result(timeout=60) for one in h.submit_many(greet, [("a",), ("b",)])] == ["hello a", "hello b"]
        assert handle.task().state is TaskState.COMPLETED
        assert h.handle(handle.id).result() == "hello you"
        assert h.summary().tasks[TaskState.COMPLETED] == 4


def test_one_task_is_run_resumed_retried_and_cancelled(url: str) -> None:
    hold, _, wait = with_tasks(url)
    calls: list[int] = []

    @hold.task
    async def fails_at_first(ctx: Context) -> int:
        calls.append(1)
        if len(calls) < 3:
            raise InvalidValue("not yet")
        return len(calls)

    with hold.sync as h:
        handle = h.submit(fails_at_first)
        with pytest.raises(TaskFailed, match="not yet"):
            h.run(handle)
        with pytest.raises(InvalidValue, match="give it a deadline in the future"):
            h.resume(handle, deadline=datetime.now(UTC))
        assert h.resume(handle, deadline=600).id == handle.id
        assert handle.task().deadline is not None
        with pytest.raises(TaskFailed):
            h.run(handle.id)
        assert h.retry(handle, feedback="again", deadline=timedelta(hours=1)).id == handle.id
        assert h.run(handle) == 3
        stopped = h.submit(wait, "never")
        assert stopped.cancel("enough") is TaskState.CANCELLED
        assert h.cancel(h.submit(wait, "never")) is TaskState.CANCELLED
        with pytest.raises(TaskCancelled, match="enough"):
            stopped.result()


def test_a_blocking_task_may_use_it_too(quick: Holdfast) -> None:
    @quick.task
    def outer(ctx: SyncContext) -> int:
        with quick.sync as inner:
            child: SyncHandle[int] = inner.submit("inner", queue="default")
        return child.result(timeout=60)

    @quick.task
    async def inner(ctx: Context) -> int:
        return 7

    with quick.sync as h, h.worker():
        assert h.submit(outer).result(timeout=60) == 7


# Events


def test_events_come_as_they_are_emitted_and_end_with_the_task(url: str) -> None:
    hold = Holdfast(url)

    @hold.task
    async def count(ctx: Context) -> None:
        for number in range(3):
            await ctx.wait_event("on")
            await ctx.progress(number)

    with hold.sync as h, h.worker():
        handle = h.submit(count)
        h.emit("on")
        seen = []
        for event in handle.events():
            seen.append(event.payload["step"])
            h.emit("on")
        assert seen == [0, 1, 2]
        assert [event.payload["step"] for event in handle.events(after=1)] == [1, 2]


def test_events_can_be_left_early(quick: Holdfast) -> None:
    @quick.task
    async def reports(ctx: Context) -> None:
        await ctx.progress(1)
        await ctx.wait_event("never")

    with quick.sync as h, h.worker():
        handle = h.submit(reports)
        closed = handle.events()
        next(closed)
        closed.close()
        with pytest.raises(StopIteration):
            next(closed)
        dropped = handle.events()
        next(dropped)
        del dropped
        gc.collect()
        kept = handle.events()
        next(kept)
        _until(lambda: len(quick.services.watcher._watching.get(f"task:{handle.id}", ())) == 1)
        handle.cancel()
    with pytest.raises(StoreClosed):
        next(kept)


# Opening and closing


def test_blocks_may_be_nested_and_opened_again(url: str) -> None:
    hold, greet, _ = with_tasks(url)
    with hold.sync as outer:
        with hold.sync as inner:
            assert inner is outer
            assert _loop_threads() == 1
        handle = outer.submit(greet, "a")
        with outer.worker():
            handle.result(timeout=60)
    assert _loop_threads() == 0
    with pytest.raises(StoreClosed, match=r"is not open for blocking code; use it inside `with hold\.sync as h:`"):
        outer.submit(greet, "b")
    with pytest.raises(StoreClosed, match="has ended"):
        handle.task()
    with pytest.raises(StoreClosed):
        hold.store  # noqa: B018
    with hold.sync as again, again.worker():
        assert again.submit(greet, "c").result(timeout=60) == "hello c"


async def test_it_may_be_opened_asynchronously_afterwards(quick: Holdfast) -> None:
    await asyncio.to_thread(_open_and_close, quick)
    async with quick:
        await quick.summary()


def _open_and_close(hold: Holdfast) -> None:
    with hold.sync as h:
        h.summary()


async def test_on_a_thread_that_runs_a_loop_it_says_what_to_use_instead(quick: Holdfast) -> None:
    with pytest.raises(HoldfastError, match=r"use `async with hold:` and `await hold\.submit"), quick.sync:
        pass
    await asyncio.to_thread(quick.sync.__enter__)
    try:
        with pytest.raises(HoldfastError, match=r"asyncio\.to_thread"):
            quick.sync.summary()
    finally:
        await asyncio.to_thread(quick.sync.__exit__, None, None, None)


async def test_what_is_open_in_another_loop_is_not_opened_here(quick: Holdfast) -> None:
    async with quick:
        with pytest.raises(HoldfastError, match="open in another event loop"):
            await asyncio.to_thread(_open_and_close, quick)
        await quick.summary()
    await asyncio.to_thread(_open_and_close, quick)


def test_what_cannot_be_opened_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    hold = Holdfast(f"sqlite:///{tmp_path}/file/hold.db")
    with pytest.raises(HoldfastError) as caught, hold.sync:
        pass
    assert not isinstance(caught.value, InvalidURL)
    assert _loop_threads() == 0


def test_an_error_on_closing_is_raised(quick: Holdfast) -> None:
    async def broken() -> None:
        raise RuntimeError("cannot close")

    with pytest.raises(RuntimeError, match="cannot close"), quick.sync:
        quick._opened.push_async_callback(broken)
    assert _loop_threads() == 0


# Errors and types


def test_exceptions_cross_unchanged(quick: Holdfast) -> None:
    class Own(Exception):
        pass

    error = Own("mine")

    async def fail() -> None:
        raise error

    @quick.task
    async def slow(ctx: Context, number: int) -> None:
        await asyncio.sleep(60)

    with quick.sync as h:
        with pytest.raises(Own) as caught:
            h.wait(fail())
        assert caught.value is error
        assert error.__context__ is None
        h.submit(slow, 1, key="k")
        with pytest.raises(KeyConflict):
            h.submit(slow, 2, key="k")
        with pytest.raises(InvalidValue, match="cannot be called like this"):
            h.submit(slow)  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            h.handle("unknown").task()
        with pytest.raises(DeadlineExceeded):
            h.submit(slow, 3).result(timeout=0.01)
        with pytest.raises(InvalidValue):
            h.worker(concurrency=0)


def test_the_context_of_the_caller_goes_along(quick: Holdfast) -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def read() -> str:
        return variable.get()

    with quick.sync as h:
        variable.set("mine")
        assert h.wait(read()) == "mine"


def test_results_keep_their_types(quick: Holdfast) -> None:
    @quick.task
    async def number(ctx: Context) -> int:
        return 7

    with quick.sync as h, h.worker():
        assert_type(h, SyncHoldfast)
        handle = h.submit(number)
        assert_type(handle, SyncHandle[int])
        assert_type(handle.handle, Handle[int])
        assert_type(handle.result(timeout=60), int)
        assert_type(h.submit_many(number, [()]), list[SyncHandle[int]])
        assert_type(h.run(handle), int)


def test_a_machine_can_be_looked_at(quick: Holdfast) -> None:
    machine = Machine("m", initial="a", transitions={"a": "b"}, final="b")

    @machine.state("a")
    def go(ctx: SyncContext, data: object) -> str:
        return "b"

    task = quick.register(machine)
    with quick.sync as h, h.worker():
        handle = h.submit(task)
        assert handle.result(timeout=60).state == "b"
        assert h.wait(machine.state_of(handle.handle)) == "b"


@pytest.mark.parametrize(
    ("blocking", "asynchronous"), [(SyncHoldfast, Holdfast), (SyncHandle, Handle), (SyncWorker, Worker)]
)
def test_blocking_calls_take_what_the_asynchronous_ones_take(blocking: type, asynchronous: type) -> None:
    """The facade has every parameter of the methods behind it."""
    for name, function in inspect.getmembers(blocking, inspect.isfunction):
        if name.startswith("_") or name == "wait":
            continue
        taken = inspect.signature(function).parameters.values()
        expected = inspect.signature(getattr(asynchronous, name)).parameters.values()
        assert [(one.name, one.default, one.kind) for one in taken] == [
            (one.name, one.default, one.kind) for one in expected
        ], name


# Threads


def test_threads_share_it(url: str) -> None:
    hold, greet, _ = with_tasks(url)

    def use(number: int) -> str:
        with hold.sync as h:
            return h.submit(greet, str(number)).result(timeout=60)

    with hold.sync as h, h.worker(), ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(use, range(40))) == sorted(f"hello {number}" for number in range(40))
        assert _loop_threads() == 1


def test_threads_may_open_and_close_it_at_once(quick: Holdfast) -> None:
    def use(number: int) -> None:
        for _ in range(10):
            with quick.sync as h:
                assert h.wait(_one_more(number)) == number + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(8)))
    assert _loop_threads() == 0


async def _one_more(number: int) -> int:
    return number + 1


def test_a_call_under_way_when_another_thread_closes_it_gets_an_error(quick: Holdfast) -> None:
    begun: list[None] = []
    ended = threading.Event()

    async def for_ever() -> None:
        begun.append(None)
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            await quick.summary()  # the store is still open for whatever a call has to put away
            ended.set()

    with ThreadPoolExecutor(4) as pool:
        with quick.sync as h:
            calls = [pool.submit(h.wait, for_ever()) for _ in range(3)]
            _until(lambda: len(begun) == 3)
        for call in calls:
            with pytest.raises(StoreClosed, match="ended in another thread"):
                call.result(timeout=60)
    assert ended.is_set()


def test_a_coroutine_that_cancels_itself_is_not_taken_for_a_closed_block(quick: Holdfast) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with quick.sync as h, pytest.raises(BaseException) as caught:  # noqa: PT011
        h.wait(give_up())
    assert type(caught.value).__name__ == "CancelledError"


def _loop_threads() -> int:
    return sum(thread.name == "holdfast-sync" for thread in threading.enumerate())


def _until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
