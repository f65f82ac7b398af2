"""Subscriptions, as both eras of clients ask for them.

A modern client (2026-07-28) opens a stream with ``subscriptions/listen``, and gets its notifications on that stream. A
legacy client calls ``resources/subscribe`` and gets them on its connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import (
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from holdfast.mcp.addresses import Address, read_address
from holdfast.mcp.resources.content import first_page
from holdfast.mcp.watches import ResourceWatcher
from holdfast.model.errors import InvalidValue

Context = ServerRequestContext[Any, Any]

MOST_AT_ONCE = 100
"""Resources of one stream, or of one connection."""

MOST_OF_ONE_CALLER = 500
"""Resources of all streams and connections of one caller; a stream without any counts as one."""


class Subscriptions:
    """The handlers of both eras, over one watcher."""

    def __init__(self, watcher: ResourceWatcher) -> None:
        """``watcher`` finds out what changed."""
        self._watcher = watcher
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._connections: dict[int, dict[str, Address]] = {}
        self._callers: dict[int, str] = {}
        """Which caller opened a connection; its subscriptions count for that caller."""
        self._places: Counter[str] = Counter()

    def close(self) -> None:
        """End the streams in good order."""
        self._listen.close()

    @contextmanager
    def _places_for(self, caller: str, wanted: int) -> Iterator[None]:
        self._take_places(caller, wanted)
        try:
            yield
        finally:
            self._places[caller] -= wanted

    def _take_places(self, caller: str, wanted: int) -> None:
        """Keep one caller from using up the subscriptions of all."""
        if self._places[caller] + wanted > MOST_OF_ONE_CALLER:
            raise InvalidValue(f"{caller} watches {MOST_OF_ONE_CALLER} resources already; end some subscriptions first")
        self._places[caller] += wanted

    # Modern

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams, caller: str
    ) -> SubscriptionsListenResult:
        """Serve one stream. A URI that is not of this server is ignored, which the acknowledgement shows."""
        wanted = params.notifications.resource_subscriptions or []
        known = {uri: address for uri in wanted[:MOST_AT_ONCE] if (address := _address(uri)) is not None}
        honoured = params.notifications.model_copy(update={"resource_subscriptions": list(known)})
        watched: list[str] = []
        with self._places_for(caller, max(1, len(known))):
            try:
                for uri, address in known.items():
                    await self._watcher.watch(uri, address, self._publish)
                    watched.append(uri)
                return await self._listen(ctx, params.model_copy(update={"notifications": honoured}))
            finally:
                for uri in watched:
                    self._watcher.leave(uri, known[uri], self._publish)

    async def _publish(self, uri: str) -> None:
        """Notify all streams that watch it at the same time."""
        await self._bus.publish(ResourceUpdated(uri=uri))

    # Legacy

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams, caller: str) -> EmptyResult:
        """Notify this connection of changes, until it unsubscribes or ends."""
        uri, connection = str(params.uri), _connection(ctx)
        address = _address(uri)
        if address is None:
            raise InvalidValue(f"{uri[:200]} is not a resource of this server")
        own = self._connections.get(id(connection))
        if own is None:
            own = self._connections[id(connection)] = {}
            self._callers[id(connection)] = caller
            connection.exit_stack.callback(self._forget, connection)
        if uri not in own:
            if len(own) >= MOST_AT_ONCE:
                raise InvalidValue(f"this connection watches {MOST_AT_ONCE} resources already; unsubscribe from some")
            self._take_places(self._callers[id(connection)], 1)
            own[uri] = address  # before the first await: the client may ask twice at the same time
            try:
                await self._watcher.watch(uri, address, connection.send_resource_updated)
            except BaseException:
                if own.pop(uri, None) is not None:
                    self._places[self._callers[id(connection)]] -= 1
                raise
        return EmptyResult()

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Send no more notifications. A client that never subscribed gets the same answer."""
        uri, connection = str(params.uri), _connection(ctx)
        address = self._connections.get(id(connection), {}).pop(uri, None)
        if address is not None:
            self._places[self._callers[id(connection)]] -= 1
            self._watcher.leave(uri, address, connection.send_resource_updated)
        return EmptyResult()

    def _forget(self, connection: Connection) -> None:
        caller = self._callers.pop(id(connection), "")
        for uri, address in self._connections.pop(id(connection), {}).items():
            self._places[caller] -= 1
            self._watcher.leave(uri, address, connection.send_resource_updated)


def _address(uri: str) -> Address | None:
    try:
        address = read_address(uri)
    except InvalidValue:
        return None
    return None if address is None else first_page(address)


def _connection(ctx: Context) -> Connection:
    """Return the connection, which outlives the request as a subscription does; the SDK has no public way to it."""
    return ctx.session._connection  # noqa: SLF001
