"""Closing, however it is disturbed, and looking at a file that is busy."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import apsw
import pytest

from holdfast import NewTask
from holdfast.store.base import ANYTHING
from holdfast.store.sqlite import SqliteStore

PATIENCE = 60.0
"""Seconds before something that does not happen fails its test."""


def open_files(folder: Path) -> set[str]:
    """Which files of the folder this process has open."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("only Linux tells which files are open")
    targets = {os.readlink(link) for link in descriptors.iterdir() if link.is_symlink()}  # noqa: PTH115 - may be gone
    return {Path(target).name for target in targets if Path(target).parent == folder}


def reader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast-reader")]


async def test_a_cancelled_close_closes_everything_and_is_cancelled(tmp_path: Path) -> None:
    store = await SqliteStore(tmp_path / "agents.db").open()
    await store.summary()
    assert reader_threads()
    assert "agents.db-gate" in open_files(tmp_path)
    async with store.listen() as listener:
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)  # it waits for the end of the looking
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert ANYTHING in await listener.wait(PATIENCE)
    assert open_files(tmp_path) == set()
    assert reader_threads() == []


async def test_a_probe_that_fails_does_not_spoil_the_close(tmp_path: Path) -> None:
    store = await SqliteStore(tmp_path / "agents.db").open()
    assert store._backend.probe is not None
    failed = asyncio.Event()

    def broken() -> int:
        failed.set()
        raise RuntimeError("a defect")

    async with store.listen():
        store._backend.probe._version = broken
        await asyncio.wait_for(failed.wait(), PATIENCE)
    await store.close()
    assert open_files(tmp_path) == set()


@pytest.mark.parametrize("part", ["reader", "slow_reader"])
async def test_a_part_that_cannot_be_closed_does_not_keep_the_others_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    store = await SqliteStore(tmp_path / "agents.db").open()
    await store.summary()
    reader = getattr(store._backend, part)
    real = reader.close

    def fail() -> None:
        real()
        raise apsw.BusyError("busy")

    monkeypatch.setattr(reader, "close", fail)
    with pytest.raises(apsw.BusyError):
        await store.close()
    assert open_files(tmp_path) == set()


async def test_a_connection_that_cannot_be_closed_lets_go_of_the_gate(tmp_path: Path) -> None:
    store = await SqliteStore(tmp_path / "agents.db").open()
    writer = store._backend.writer
    assert writer is not None
    real = writer._connection

    class Stubborn:
        def close(self) -> None:
            real.close()
            raise apsw.BusyError("busy")

    writer._connection = Stubborn()  # type: ignore[assignment]
    with pytest.raises(apsw.BusyError):
        await store.close()
    assert open_files(tmp_path) == set()


async def test_who_begins_to_listen_while_the_file_is_busy_misses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        assert store._backend.probe is not None
        real, looks = store._backend.probe._version, 0

        def busy_at_first() -> int | None:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise apsw.BusyError("busy")
            return real()

        store._backend.probe._version = busy_at_first
        async with store.listen() as listener:
            assert looks == 1
            await other.submit([NewTask(name="work")])
            assert ANYTHING in await listener.wait(PATIENCE)
