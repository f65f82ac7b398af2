"""A server looks after the tasks of agents outside, watched or not: it may be the only process that can."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import Holdfast, TaskState
from holdfast.mcp import watches
from tests.mcp.support import server_of
from tests.mcp.watching import watcher_of
from tests.proof.engine.conditions import eventually
from tests.service.handover.support import Outside, task_of


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a server keep house more often than every five seconds."""
    monkeypatch.setattr(watches, "CLEAN_UP_EVERY", 0.1)


def is_in(hold: Holdfast, task_id: str, state: TaskState) -> Callable[[], object]:
    async def look() -> bool:
        return (await task_of(hold, task_id)).state is state

    return look


async def test_what_a_dead_agent_held_is_free_without_a_watcher(hold: Holdfast) -> None:
    ada = Outside(hold, "ada")
    task = await ada.offer()
    await ada.take(seconds=3)
    async with server_of(hold).http():
        await eventually("it is free", is_in(hold, task.id, TaskState.PENDING))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("is_taken_back", [False, True])
async def test_what_was_to_be_cancelled_ends(hold: Holdfast, *, is_watched: bool, is_taken_back: bool) -> None:
    """Also if another process's sweep took it back before: that one knows nothing of such tasks."""
    ada = Outside(hold, "ada")
    task = await ada.offer()
    lease = (await ada.take(seconds=3)).lease
    await hold.cancel(task.id, "not wanted", by="ann")
    if is_taken_back:
        await hold.store.retire(lease.worker_id)
        assert (await task_of(hold, task.id)).state is TaskState.PENDING
    server = server_of(hold)
    async with server.http(), watcher_of(server, "auto", ["fact://db1"] if is_watched else []):
        await eventually("it has ended", is_in(hold, task.id, TaskState.CANCELLED))  # type: ignore[arg-type]


async def test_a_server_that_only_reads_touches_nothing(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = 0

    async def sweep() -> None:
        nonlocal swept
        swept += 1

    monkeypatch.setattr(hold.store, "sweep", sweep)
    server = server_of(hold, read_only=True)
    async with server.http(), watcher_of(server, "auto", ["fact://db1"]) as heard:
        for size in ("2 TB", "3 TB"):  # it looks, again and again
            heard.forget()
            await hold.memory.store("db1", "disk", size, source="bob")
            await heard.of("fact://db1")
    assert swept == 0
