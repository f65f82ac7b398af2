"""Every loop that runs in the background survives whatever goes wrong in it, and says so once.

The tests find the loops themselves, in the source and among the tasks that run: a new one cannot be forgotten.
"""

from __future__ import annotations

import ast
import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path

import pytest

import holdfast
from holdfast import Context, Feed, FeedEvent, Handle, Holdfast, TaskDefinition
from holdfast.mcp import server
from holdfast.mcp.access import CallerAccess
from holdfast.mcp.watches import ResourceWatcher
from holdfast.model.flow_limit import PermitReturn
from holdfast.model.task import NewTask, Task
from holdfast.service.service import Service
from holdfast.store.background import Loop
from tests.engine.support import until
from tests.postgres_server import PostgresServer

SOURCE = Path(holdfast.__file__).parent
STARTERS = {"create_task", "ensure_future", "start", "Thread"}
ENDS_BY_ITSELF = {
    ("engine/runtime/alarms.py", "_fire"): "goes on to the next alarm whatever a callback raises",
    (
        "engine/runtime/batcher.py",
        "_flush",
    ): "hands each error to those who wait for that batch, and takes the next one",
    ("engine/runtime/batcher.py", "_send_until_taken"): "tries again or hands the error to the caller",
    ("engine/runtime/threads.py", "_work"): "catches BaseException around every job",
    ("agent/text_stream.py", "_emit_now_and_then"): "catches whatever the store raises, and ends with the answer",
    ("mcp/watches.py", "_send"): "catches whatever the client's connection raises, and ends with the last word",
    ("store/postgres/notices.py", "_send_all"): "catches whatever the store raises; the next hint starts it again",
}
"""What is started and has a loop in it without being a Loop: why it survives."""


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """The modules that start something in the background."""
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    return [
        (name, ast.parse(text))
        for name, text in texts.items()
        if not name.startswith("testing/") and any(f"{starter}(" in text for starter in (*STARTERS, "Loop"))
    ]


def name_of(node: ast.AST) -> str:
    match node:
        case ast.Call(func=func):
            return name_of(func)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def started_in(module: ast.Module) -> Iterator[str]:
    """The functions of a module that something starts in the background."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and name_of(node) in STARTERS:
            for given in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield name_of(given)


def has_loop(function: ast.AST) -> bool:
    return any(isinstance(node, ast.While) for node in ast.walk(function))


def test_every_loop_in_the_background_is_a_loop_that_survives() -> None:
    found = {
        (name, function.name)
        for name, module in modules()
        for started in [set(started_in(module))]
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if function.name in started and has_loop(function)
    }
    found.discard(("store/background.py", "run"))  # the one that all others are
    assert found == ENDS_BY_ITSELF.keys(), "make it a Loop of store/background.py, or say here why it survives"


@cache
def loops_in_the_source() -> set[str]:
    names = set()
    for name, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and name_of(node) == "Loop":
                assert isinstance(node.args[0], ast.Constant), f"{name}: give the Loop its name right there"
                names.add(str(node.args[0].value))
    return names


def loops_that_run() -> list[tuple[str, asyncio.Task[object]]]:
    found = []
    for task in asyncio.all_tasks():
        frame = getattr(task.get_coro(), "cr_frame", None)
        if frame is not None and frame.f_code is Loop.run.__code__:
            found.append((frame.f_locals["self"].name, task))
    return found


class BadMoment(Exception):
    """An unexpected error."""


async def hit(name: str) -> None:
    """Raise an error in every loop of this name, where it waits.

    They are looked up each time: the probe of a SQLite store ends by itself without a listener, and begins again.
    """

    def hits() -> bool:
        waiters = [task._fut_waiter for running, task in loops_that_run() if running == name]  # type: ignore[attr-defined]
        if not waiters or any(waiter is None or waiter.done() for waiter in waiters):
            return False
        for waiter in waiters:
            waiter.set_exception(BadMoment("out of the blue"))
        return True

    await until(hits)


async def test_no_error_ends_a_loop(
    tmp_path: Path, postgres18: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Every loop is hit by an error, again and again, wherever it waits. It says so once, and goes on."""
    caplog.set_level(logging.WARNING)
    over = asyncio.Event()

    async def hold_it(task: Task) -> Task:
        await over.wait()
        return task

    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[Task]] = []
        feeds: list[asyncio.Task[FeedEvent]] = []
        results, handles = [], list[Handle[str]]()
        for url in (f"sqlite:///{tmp_path}/hold.db", postgres18.create_store()):
            hold = Holdfast(url)
            work, limited = hold.task(do_nothing), hold.task(use_limit)
            results.append(partial(result_of, hold, work))
            await stack.enter_async_context(hold)
            await stack.enter_async_context(hold.worker(lease=60))
            access = CallerAccess(service=Service(hold), caller=server._UNKNOWN, claimable=())
            await stack.enter_async_context(ResourceWatcher(access, sweeps=True).running())
            [outside] = await hold.store.submit([NewTask(name="outside", user_input={})])
            tasks.append(asyncio.create_task(hold.store.execute_step(outside.task_id, hold_it)))
            await hold.limit("api", concurrency=1)
            return_later(hold, over)
            # One step waits for the permit that another one gives back.
            handles += [await hold.submit(limited), await hold.submit(limited)]
            feeds.append(asyncio.create_task(read_on(hold.feed(kinds=["task.completed"]))))
            await until(partial(one_waits, hold))  # a claim that is hit would leave its task to a later look
        await until(lambda: {name for name, _ in loops_that_run()} == loops_in_the_source())
        for _ in range(3):
            for name in sorted(loops_in_the_source()):
                await hit(name)
                await until(partial(is_said, caplog, name))
        await until(lambda: {name for name, _ in loops_that_run()} == loops_in_the_source())
        for result in results:
            assert await result() == "done"
        assert [event.kind for event in await asyncio.gather(*feeds)] == ["task.completed"] * 2
        over.set()
        await asyncio.gather(*tasks)
        for handle in handles:
            assert await handle.result(timeout=60) == "done"
    assert "has failed" not in caplog.text  # the error that ends a task in the background


async def read_on(feed: Feed) -> FeedEvent:
    return await anext(feed)


async def do_nothing(ctx: Context) -> str:
    del ctx
    return "done"


async def use_limit(ctx: Context) -> str:
    return await ctx.step("ask", lambda: "done", limits=["api"])


async def one_waits(hold: Holdfast) -> bool:
    [use] = await hold.limits("api")
    return (use.taken, use.waiting) == (1, 1)


def return_later(hold: Holdfast, over: asyncio.Event) -> None:
    """Let the store take permits back only when it is over."""
    return_permits = hold.store.return_permits

    async def wait_and_return(returned: Sequence[PermitReturn]) -> None:
        await over.wait()
        await return_permits(returned)

    vars(hold.store)["return_permits"] = wait_and_return


async def result_of(hold: Holdfast, work: TaskDefinition[[], str]) -> str:
    return await (await hold.submit(work)).result(timeout=60)


def is_said(caplog: pytest.LogCaptureFixture, name: str) -> bool:
    return f"{name} failed, and will be tried again" in caplog.text
