"""A small TCP forwarder in front of PostgreSQL servers: clients keep their URL through fail-overs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.postgres_server import PostgresServer

_CHUNK = 1 << 16


class Forwarder:
    """Leads connections to one server after the other, for as long as its block lasts."""

    def __init__(self, server: PostgresServer) -> None:
        self._socket = _socket_of(server)
        self._going: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        await self.cut()

    def lead_to(self, server: PostgresServer) -> None:
        """Lead new connections to this server; those that are open stay where they are."""
        self._socket = _socket_of(server)

    async def cut(self) -> None:
        """End all connections that are open."""
        going = list(self._going)
        for one in going:
            one.cancel()
        await asyncio.gather(*going, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._going.add(task)
        try:
            with suppress(OSError):
                up, down = await asyncio.open_unix_connection(str(self._socket))
                try:
                    await _first(_pump(reader, down), _pump(up, writer))
                finally:
                    down.close()
        except asyncio.CancelledError:
            pass  # cut off
        finally:
            writer.close()
            self._going.discard(task)


async def _first(*pumps: object) -> None:
    """Pump until one side has ended."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


def _socket_of(server: PostgresServer) -> Path:
    return server.folder / ".s.PGSQL.5432"
