"""The server process: uvicorn on a socket of ours, until it is stopped."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import uvicorn

from holdfast.web.application import Application
from holdfast.web.shutdown import ERROR_SEND_TIMEOUT, GRACE

_BACKLOG: Final = 2048


class Server:
    """Serves an application on a bound socket, for as long as its block lasts.

    Its block has to outlast the block of the application. So the application is closed while answers can still be sent,
    and subscribers are notified of the end.
    """

    def __init__(self, application: Application, listener: socket.socket) -> None:
        """Do not accept connections yet."""
        self._requests, self._listener = application.requests, listener
        self._uvicorn = _Uvicorn(_configured(application))
        self._serving: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        """Let clients connect, and answer them."""
        self._listener.listen(_BACKLOG)
        self._serving = asyncio.create_task(self._uvicorn.serve(sockets=[self._listener]))
        return self

    async def run(self, until: asyncio.Event) -> None:
        """Serve until ``until`` is set; then wait until the calls under way are answered or out of time."""
        stopping = asyncio.create_task(until.wait())
        try:
            await asyncio.wait([stopping, self._serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        self._stop()
        await self._requests.answered()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the requests that are still under way, and the server."""
        self._stop()
        self._requests.end()
        await self._serving

    def _stop(self) -> None:
        """Accept no more connections and requests."""
        self._uvicorn.should_exit = True
        self._requests.stop()


def _configured(application: Application) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # it would contain queries; our own log does not
        server_header=False,
        proxy_headers=False,  # their sender may not be a proxy
        # For requests that do not end when they are cancelled.
        timeout_graceful_shutdown=math.ceil(GRACE + ERROR_SEND_TIMEOUT) + 2,
    )


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command: it has more to close than the server."""
        yield
