"""The watcher alone: how it ends."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast
from holdfast.mcp.server import McpServer
from holdfast.service.service import Service
from tests.engine.support import PATIENCE, settle


@pytest.mark.parametrize("turns", range(5))
async def test_it_ends_when_a_watcher_has_just_begun(turns: int) -> None:
    """A cancel that came together with what it waited for was lost, and the server never stopped."""
    async with Holdfast("memory://") as hold:
        watcher = McpServer(Service(hold))._watcher
        async with asyncio.timeout(PATIENCE), watcher.running():
            await settle()
            watcher._changed.set()
            await settle(turns)
