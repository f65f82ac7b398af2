"""Notifications of changes, in either protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import ResourceUpdatedNotification

Notices = asyncio.Queue[str]


def hearing(notices: Notices) -> Callable[[object], object]:
    """Return a message handler for a legacy client."""

    async def hear(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            notices.put_nowait(str(message.params.uri))

    return hear


def watching(client: Client, mode: str, uri: str, notices: Notices) -> AbstractAsyncContextManager[None]:
    """Get notifications of a resource within the block; a legacy client was made with ``hearing``."""
    return _subscribed(client, uri) if mode == "legacy" else _listening(client, uri, notices)


@asynccontextmanager
async def _subscribed(client: Client, uri: str) -> AsyncIterator[None]:
    with pytest.warns(MCPDeprecationWarning):  # what legacy clients do is what is tested here
        await client.subscribe_resource(uri)
    yield
    with pytest.warns(MCPDeprecationWarning):
        await client.unsubscribe_resource(uri)


@asynccontextmanager
async def _listening(client: Client, uri: str, notices: Notices) -> AsyncIterator[None]:
    async with client.listen(resource_subscriptions=[uri]) as subscription:

        async def hear() -> None:
            async for event in subscription:
                assert isinstance(event, ResourceUpdated)
                notices.put_nowait(event.uri)

        hears = asyncio.create_task(hear())
        try:
            yield
        finally:
            hears.cancel()
            await asyncio.gather(hears, return_exceptions=True)
