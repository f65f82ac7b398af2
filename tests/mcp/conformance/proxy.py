"""A proxy between a suite and the server: the suite cannot send a token, and asks for things under names of its own.

It adds the header, puts names of ours in the place of the suite's, and remembers what was asked and answered: to a
suite a result of the right shape that says that there is no such tool is often good enough.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

HOP_BY_HOP: Final = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
"""Headers that are about one connection, and not about what is sent over it."""

Params: TypeAlias = Mapping[str, Any]
Names: TypeAlias = Mapping[str, Callable[[Params], Params]]
"""For a name of the suite, what to ask the server for, given what the suite asked for."""


@dataclass(slots=True)
class Exchange:
    """A request as it reached the server, and what came back."""

    asked: Mapping[str, Any]
    meant: str | None
    """The suite's name for the thing, where one of ours took its place."""
    status: int = 0
    body: bytearray = field(default_factory=bytearray)

    @property
    def answer(self) -> Mapping[str, Any] | None:
        """The answer to this very request, out of a plain body or out of a stream of events."""
        for line in bytes(self.body).splitlines():
            message = _parsed(line.removeprefix(b"data:"))
            if "id" in self.asked and message.get("id") == self.asked["id"]:
                return message
        return None


class Proxy:
    """What the suites talk to."""

    def __init__(self, upstream: str, token: str, names: Names) -> None:
        self.exchanges: list[Exchange] = []
        self._upstream = upstream
        self._token = token
        self._names = names
        self._client: httpx2.AsyncClient | None = None

    def application(self) -> Starlette:
        methods = ["GET", "POST", "DELETE", "OPTIONS"]
        return Starlette(routes=[Route("/{path:path}", self._forward, methods=methods)], lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        # A stream may be silent for as long as nothing happens, and the settings of the machine lead to other places.
        async with httpx2.AsyncClient(timeout=None, trust_env=False) as self._client:
            yield

    async def _forward(self, request: Request) -> Response:
        assert self._client is not None
        body = await request.body()
        exchange = self._translated(_parsed(body))
        self.exchanges.append(exchange)
        headers = [(name, value) for name, value in request.headers.items() if name not in HOP_BY_HOP]
        if exchange.meant is not None:
            body = json.dumps(exchange.asked).encode()
            params = exchange.asked["params"]
            ours = params.get("name") or params.get("uri")
            headers = [(name, ours if name == "mcp-name" else value) for name, value in headers]
        headers.append(("authorization", f"Bearer {self._token}"))
        url = self._upstream + request.url.path
        sent = self._client.build_request(request.method, url, headers=headers, content=body or None)
        answer = await self._client.send(sent, stream=True)
        exchange.status = answer.status_code
        kept = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
        return StreamingResponse(_relayed(answer, exchange), answer.status_code, kept)

    def _translated(self, asked: Mapping[str, Any]) -> Exchange:
        params = asked.get("params") or {}
        meant = (params.get("ref") or params).get("name") or params.get("uri")
        translate = self._names.get(str(meant))
        if translate is None:
            return Exchange(asked, meant=None)
        return Exchange({**asked, "params": {**params, **translate(params)}}, meant)


async def _relayed(answer: httpx2.Response, exchange: Exchange) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            exchange.body += piece
            yield piece
    finally:
        await answer.aclose()


def _parsed(text: bytes) -> dict[str, Any]:
    """Read one message; an empty body, a line without data or a list is an empty one."""
    try:
        message = json.loads(text)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


@contextmanager
def running(proxy: Proxy) -> Iterator[str]:
    """Run a proxy; yields its address."""
    with serving(proxy.application()) as address:
        yield address


@contextmanager
def serving(application: Starlette) -> Iterator[str]:
    """Serve an application from a thread of its own; yields its address."""
    # Bound and listening from the start: a client that connects before the server is ready waits, and is not refused.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(application, log_config=None, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
