"""Clients that watch resources, in either era."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from mcp import Client
from mcp.client.client import ConnectMode

from holdfast.mcp.server import McpServer
from tests.mcp.support import client_of
from tests.proof.engine.conditions import PATIENCE
from tests.proof.mcp.watching import Notices, hearing, watching

QUIET = 1.2
"""Seconds in which a watcher would have been notified; looks come every half second."""


class Heard:
    """A client, and its notifications."""

    def __init__(self, client: Client, notices: Notices) -> None:
        self.client = client
        self._notices = notices
        self._came: set[str] = set()

    async def of(self, uri: str) -> None:
        """Wait until it is notified of this resource, unless it has been since the last wait."""
        async with asyncio.timeout(PATIENCE):
            while uri not in self._came:
                self._came.add(await self._notices.get())
        self._came.discard(uri)

    async def until(self, uri: str, condition: Callable[[], Awaitable[bool]]) -> None:
        """Look at each notification of this resource, and only then, until a condition holds."""
        while not await condition():
            await self.of(uri)

    async def nothing(self) -> None:
        """Nothing comes, for as long as something would have needed."""
        await asyncio.sleep(QUIET)
        assert self._notices.empty()

    def forget(self) -> None:
        """Drop what came so far."""
        self._came.clear()
        while not self._notices.empty():
            self._notices.get_nowait()


@asynccontextmanager
async def watcher_of(server: McpServer, era: ConnectMode, uris: Sequence[str]) -> AsyncIterator[Heard]:
    """A client that watches these resources within the block."""
    notices: Notices = asyncio.Queue()
    async with client_of(server, era, message_handler=hearing(notices)) as client, _all(client, era, uris, notices):
        yield Heard(client, notices)


@asynccontextmanager
async def _all(client: Client, era: ConnectMode, uris: Sequence[str], notices: Notices) -> AsyncIterator[None]:
    if not uris:
        yield
        return
    async with watching(client, era, uris[0], notices), _all(client, era, uris[1:], notices):
        yield
