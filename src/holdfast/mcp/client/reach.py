"""Reach: one server of an event loop: a connection opened on first use, shared, and opened again when it breaks.

A call that was certainly not sent, on a connection that had been idle, is tried once more on a new one: the server may
only have been restarted. After a call that got no answer, the server is probed before the next call is sent; a
connection to a server that stays silent is replaced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdfast.mcp.client.catalogue import Listing
from holdfast.mcp.client.errors import ServerAway
from holdfast.mcp.client.servers import Server
from holdfast.model.errors import MissingExtra
from holdfast.model.task import JsonValue
from holdfast.redaction import make_logger

if TYPE_CHECKING:
    from holdfast.mcp.client.answers import CallAnswer
    from holdfast.mcp.client.connection import ServerConnection

FRESH = 60.0
"""Seconds for which a listing is cached."""

PROBE = 5.0
"""Seconds for an answer from a server that left a call without one. It may be busy: calls under way are not ended."""

_log = make_logger(__name__)
_REACHES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Server, Reach]] = WeakKeyDictionary()


def reach(server: Server) -> Reach:
    """Return the running loop's one Reach of a server."""
    known = _REACHES.setdefault(asyncio.get_running_loop(), {})
    return known.setdefault(server, Reach(server))


class Reach:
    """One server."""

    def __init__(self, server: Server) -> None:
        """``server`` is where it is."""
        self._server = server
        self._connection: ServerConnection | None = None
        self._not_over: set[ServerConnection] = set()
        """All that were opened and have not ended: one that was replaced ends with its last call."""
        self._listing: Listing | None = None
        """The last one. It outlives its connection: an agent goes on while its server is restarted."""

    async def listing(self, *, within: float) -> Listing:
        """Return what the server lists; what it listed last if it is away now. Raises ServerAway if it never did."""
        if self._listing is None or time.monotonic() - self._listing.at > FRESH:
            try:
                self._listing = await self._list(within)
            except ServerAway as away:
                if self._listing is None:
                    raise
                _log.warning("%s; the tools of its last listing are used", away)
        return self._listing

    async def _list(self, within: float) -> Listing:
        used = self._in_use
        if used is not None:
            try:
                await used.list()
            except ServerAway:
                used.retire()
            else:
                return used.listing
        return (await self._connect(within)).listing

    async def call(
        self, tool: str, arguments: Mapping[str, JsonValue], meta: Mapping[str, Any], *, within: float
    ) -> CallAnswer:
        """Call a tool; connecting may take ``within`` seconds. Raises what Connection.call raises."""
        used = self._in_use
        if used is not None:
            try:
                if await used.can_send(within=min(PROBE, within / 2)):
                    return await used.call(tool, arguments, meta)
            except ServerAway:
                pass
            used.retire()
        return await (await self._connect(within)).call(tool, arguments, meta)

    async def close(self) -> None:
        """Close the connection, also one that is being opened, and those that were replaced.

        The next call opens another.
        """
        ending = list(self._not_over)
        for each in ending:
            each.retire()  # at once: a call that comes meanwhile opens another
        await asyncio.gather(*(each.close() for each in ending))

    @property
    def _in_use(self) -> ServerConnection | None:
        return self._connection if self._connection is not None and self._connection.is_open else None

    async def _connect(self, within: float) -> ServerConnection:
        """Return a connection that is open; those who need one at the same time share it, or its failure."""
        if self._connection is None or self._connection.is_over:
            self._connection = self._new(within)
        connection = self._connection
        await connection.opened()
        self._listing = connection.listing
        return connection

    def _new(self, within: float) -> ServerConnection:
        try:
            from holdfast.mcp.client.connection import ServerConnection  # noqa: PLC0415 - the SDK is an extra, and slow
        except ImportError as missing:
            raise MissingExtra("mcp", "an Agent with the tools of an MCP server") from missing
        connection = ServerConnection(self._server, within=within, on_end=self._ended)
        self._not_over.add(connection)
        return connection

    def _ended(self, connection: ServerConnection) -> None:
        # Keep no object of this loop longer than needed: the loop is held by a weak reference.
        self._not_over.discard(connection)
        if self._connection is connection:  # and not one that was opened since
            self._connection = None
