"""The sandbox itself: it borrows an application's Holdfast and gives it back as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, HoldfastError, InvalidValue, NotFound, TaskState
from holdfast.store.clock import SystemClock
from holdfast.testing import Sandbox, sandbox

hold = Holdfast("sqlite:///production.db", durable=True)


async def hello(name: str) -> str:
    return f"hello {name}"


@hold.task(queue="greetings")
async def greet(ctx: Context, name: str) -> str:
    await ctx.sleep(3600)
    return await ctx.step("greet", hello, name)


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with sandbox(hold) as box:
        yield box


async def test_it_is_a_fixture(box: Sandbox) -> None:
    handle = await box.hold.submit(greet, "you")
    assert await handle.result() == "hello you"
    trace = await box.trace(handle.id)
    assert trace.state is TaskState.COMPLETED
    assert trace.states == ("pending", "running", "waiting", "pending", "running", "completed")
    assert trace.runs == {"greet": 1}


async def test_every_test_begins_with_an_empty_store(box: Sandbox) -> None:
    assert (await box.hold.summary()).tasks == {}
    with pytest.raises(NotFound):
        await box.trace("unknown")


async def test_the_application_is_as_it_was_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for failing in (False, True):
        try:
            async with sandbox(hold):
                await (await hold.submit(greet, "you")).result()
                if failing:
                    raise ZeroDivisionError  # noqa: TRY301 - it stands for an error of the user's code
        except ZeroDivisionError:
            pass
        assert hold.url == "sqlite:///production.db"
        assert hold.options == {"durable": True}
        assert isinstance(hold._clock, SystemClock)
        assert hold._services is None
    assert list(tmp_path.iterdir()) == []


async def test_the_code_under_test_may_open_the_application_itself(box: Sandbox) -> None:
    async with hold:
        assert await (await hold.submit(greet, "you")).result() == "hello you"
    assert await (await hold.submit(greet, "them")).result() == "hello them"
    assert box.elapsed.total_seconds() == 7200


@pytest.mark.parametrize("url", ["sqlite:///{}/box.db", "json:///{}/box"])
async def test_another_store_can_be_had(url: str, tmp_path: Path) -> None:
    async with sandbox(hold, url=url.format(tmp_path)) as box:
        box.crash("greet")
        handle = await hold.submit(greet, "you")
        assert await handle.result() == "hello you"
        assert (await box.trace(handle)).runs == {"greet": 2}
    assert list(tmp_path.iterdir())


async def test_a_store_with_its_own_time_is_refused() -> None:
    with pytest.raises(InvalidValue, match="server"):
        async with sandbox(hold, url="postgresql://localhost/nowhere"):
            pass


async def test_an_open_application_is_left_alone() -> None:
    app = Holdfast("memory://")
    async with app:
        with pytest.raises(HoldfastError, match="is open on memory"):
            async with sandbox(app):
                pass
        assert (await app.summary()).tasks == {}


@pytest.mark.parametrize("stubborn", [False, True], ids=["polite", "stubborn"])
async def test_a_task_that_is_under_way_when_the_test_ends_is_handed_back(tmp_path: Path, stubborn: bool) -> None:
    app = Holdfast("memory://")
    url = f"sqlite:///{tmp_path}/box.db"
    may_end = asyncio.Event()

    async def hang() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    @app.task
    async def stuck(ctx: Context) -> None:
        await ctx.step("hang", hang)

    async with sandbox(app, url=url, patience=0.05) as box:
        with box.frozen():
            handle = await app.submit(stuck)
            await box.idle()
            assert (await handle.task()).state is TaskState.RUNNING
    may_end.set()
    async with sandbox(app, url=url) as box:
        await app.handle(handle.id).result()
        assert "handed back" in (await box.trace(handle.id)).reasons
