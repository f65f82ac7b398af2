"""The one listener of a Holdfast: how it ends, and what it says when it falls over."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import apsw
import pytest

from holdfast import Holdfast
from holdfast.engine.watcher import Watcher
from holdfast.store.base import ANYTHING, Listener
from tests.engine.support import PATIENCE


async def test_a_listener_that_falls_over_says_so_and_does_not_spoil_the_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> AbstractAsyncContextManager[Listener]:
        raise RuntimeError("a defect")

    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        hold.store.listen = broken  # type: ignore[method-assign]
        watcher = hold.services.watcher
        watcher.add(ANYTHING, lambda: None)
        assert watcher._listening is not None
        await asyncio.wait([watcher._listening], timeout=PATIENCE)
        [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "hints are not heard" in record.message
        assert record.exc_info is not None


async def test_a_busy_file_does_not_end_the_listening(tmp_path: Path) -> None:
    def busy() -> int:
        asked.set()
        raise apsw.BusyError("locked")

    asked = asyncio.Event()
    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        hold.store._probe._version = busy  # type: ignore[attr-defined]
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
