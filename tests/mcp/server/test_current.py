"""task://current shows what its reader holds, however much else runs."""

from __future__ import annotations

import pytest
from mcp.client.client import ConnectMode

from holdfast import Holdfast
from tests.mcp.support import connected, read, server_of
from tests.mcp.watching import watcher_of
from tests.service.handover.support import NOTHING, Outside, task_of

OTHERS = 55
LONG = 3600.0
"""Seconds of a lease that outlasts any test: one that runs out would be a change too."""


@pytest.fixture
async def mine(hold: Holdfast) -> Outside:
    """Ada, whose one task is older than those of all others."""
    ada, bob = Outside(hold, "ada"), Outside(hold, "bob")
    await ada.offer("mine")
    await ada.take(seconds=LONG)
    for number in range(OTHERS):
        await bob.take((await bob.offer(f"theirs {number}")).id, seconds=LONG)
    return ada


async def test_an_old_task_of_ones_own_is_there(hold: Holdfast, mine: Outside, era: ConnectMode) -> None:
    async with connected(hold, mine.name, era=era) as client:
        current = await read(client, "task://current")
    assert [line["goal"] for line in current["yours"]] == ["mine"]
    assert len(current["running"]) == 50
    assert current["running_count"] == OTHERS + 1


async def test_it_is_notified_too(hold: Holdfast, mine: Outside, era: ConnectMode) -> None:
    server = server_of(hold, mine.name)
    async with server.http(), watcher_of(server, era, ["task://current"]) as heard:
        [own] = (await read(heard.client, "task://current"))["yours"]
        asked = await Outside(hold, "bob").ask()
        assert asked is None
        await heard.nothing()
        worker = (await task_of(hold, own["task_id"])).owner
        assert worker is not None
        await hold.store.retire(worker)  # the agent is gone, and its task free again
        await heard.of("task://current")
        assert (await read(heard.client, "task://current"))["yours"] == []


async def test_tasks_of_an_earlier_holder_of_that_name_are_not_mine(hold: Holdfast) -> None:
    ada = Outside(hold, "ada")
    await ada.offer("done")
    await ada.offer("left")
    await ada.holding((await ada.take()).lease).finish("done")
    await ada.holding((await ada.take()).lease).release("", NOTHING)
    async with connected(hold, "ada") as client:
        assert (await read(client, "task://current"))["yours"] == []
