"""One server as a loop knows it: it ends with the loop, and closing leaves nothing open."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from holdfast.mcp import ServerAway
from holdfast.mcp.client.reach import Reach, reach
from holdfast.mcp.client.servers import Command
from tests.engine.support import settle
from tests.mcp.client.support import PATIENCE, World, old_command
from tests.mcp.client.test_stdio import servers


def test_a_loop_that_had_a_connection_is_not_kept() -> None:
    async def use() -> weakref.ref[asyncio.AbstractEventLoop]:
        await reach(Command(tuple(old_command()))).listing(within=PATIENCE)
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(use())
    gc.collect()
    assert loop() is None


@pytest.mark.parametrize("turns", [0, 1, 2, 50])
async def test_closing_ends_a_connection_that_is_being_opened(world: World, turns: int) -> None:
    reached = Reach(Command(tuple(world.command)))
    before = asyncio.all_tasks()
    listing = asyncio.create_task(reached.listing(within=PATIENCE))
    await settle(1 + turns)
    assert not listing.done()
    assert reached._connection is not None
    owner = reached._connection._owner
    await reached.close()
    assert owner.cancelling() == 1  # a second one would cut short how the server is ended
    with pytest.raises(ServerAway, match="its connection was closed"):
        async with asyncio.timeout(PATIENCE):
            await listing
    await settle()
    assert asyncio.all_tasks() == before
    assert servers(world.command) == []


async def test_closing_spares_what_was_opened_meanwhile(world: World) -> None:
    reached = Reach(Command(tuple(world.command)))
    await reached.listing(within=PATIENCE)
    closing = asyncio.create_task(reached.close())
    await asyncio.sleep(0)
    await reached.call("search", {"query": "cats"}, {}, within=PATIENCE)
    await closing
    opened = reached._connection
    assert opened is not None
    await reached.call("search", {"query": "cats"}, {}, within=PATIENCE)
    assert reached._connection is opened
    assert len(servers(world.command)) == 1
    await reached.close()
    assert servers(world.command) == []
