"""The one listener of a Holdfast: how it ends, and what it logs when it fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import apsw
import pytest

from holdfast import Context, Holdfast, TaskCancelled
from holdfast.engine.runtime.watcher import Watcher
from holdfast.model.canonical import parse
from holdfast.model.records import Event
from holdfast.store import records
from holdfast.store.base import ANYTHING, Listener
from tests.engine.support import PATIENCE, until


async def test_a_listener_that_fails_is_logged_and_does_not_spoil_the_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> AbstractAsyncContextManager[Listener]:
        raise RuntimeError("a defect")

    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        hold.store.listen = broken  # type: ignore[method-assign]
        watcher = hold.services.watcher
        watcher.add(ANYTHING, lambda: None)
        await until(lambda: "holdfast-watcher failed" in caplog.text)
        [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert record.exc_info is not None


async def test_a_busy_file_does_not_end_the_listening(tmp_path: Path) -> None:
    def busy() -> int:
        asked.set()
        raise apsw.BusyError("locked")

    asked = asyncio.Event()
    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        hold.store._backend.probe._version = busy  # type: ignore[attr-defined]
        heard = asyncio.Event()
        watcher = hold.services.watcher
        watcher.add("channel:news", heard.set)
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
            await hold.store.emit("news", 1)
            await heard.wait()


async def test_a_cancelled_close_ends_the_listening_and_is_cancelled(quick: Holdfast) -> None:
    watcher = Watcher(quick.store)
    watcher.add(ANYTHING, lambda: None)
    listening = watcher._listening
    assert listening is not None
    await asyncio.sleep(0)
    closing = asyncio.create_task(watcher.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert listening.cancelled()


async def test_a_waiter_never_reads_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may be large, while the task changes often. Neither after each change nor at the end."""
    read: list[bytes] = []

    def counting(data: bytes, name: str = "value") -> object:
        read.append(data)
        return parse(data, name=name)

    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:

        @hold.task
        async def work(ctx: Context, text: str) -> None: ...

        handle = await hold.submit(work, "a large input")
        looks = 0
        standing = hold.store.standing

        async def looking(task_id: str) -> object:
            nonlocal looks
            looks += 1
            return await standing(task_id)

        def has_looked(least: int) -> bool:
            return looks >= least

        monkeypatch.setattr(hold.store, "standing", looking)
        monkeypatch.setattr(records, "parse", counting)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_end_of(handle.result()))
            listening = group.create_task(_end_of(_all_of(handle.events())))
            for number in range(1, 6):
                await until(partial(has_looked, 2 * number))
                hold.services.watcher._notify(frozenset({f"task:{handle.id}"}))
            monkeypatch.setattr(records, "parse", parse)  # a caller that cancels may read it
            await handle.cancel("enough")
            monkeypatch.setattr(records, "parse", counting)
        assert isinstance(waiting.result(), TaskCancelled)
        assert listening.result() is None
        assert looks > 10
        assert not [data for data in read if b"a large input" in data]
        assert await hold.store.get(handle.id)
        assert [data for data in read if b"a large input" in data], "reading the input would have been seen"


async def _all_of(events: AsyncIterator[Event]) -> None:
    async for _ in events:
        pass


async def _end_of(waiting: Awaitable[object]) -> Exception | None:
    try:
        await waiting
    except Exception as error:  # noqa: BLE001 - the subject
        return error
    return None
