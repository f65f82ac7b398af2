"""The two transports to a server. They record whether a request was sent: that decides what its failure proves.

The SDK's HTTP transport ends the whole connection, with every call on it, when one request finds no listener or
loses its answer. Here that becomes the answer to this one request, so that the others go on.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from holdfast.mcp.client.dispatch import Sending, sending_of
from holdfast.mcp.client.health import Health
from holdfast.mcp.client.pipe import pipe_to
from holdfast.mcp.client.servers import Command, Endpoint, Server
from holdfast.model.failure import storable
from holdfast.redaction import know_proxies

LONGEST_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer over HTTP. A longer one is dropped, and the outcome of the call is then unknown."""

_WRITE_TIMEOUT = 60.0


@asynccontextmanager
async def transport_to(server: Server, *, connect: float, health: Health) -> AsyncIterator[Any]:
    """Open the transport to a server; connecting takes ``connect`` seconds at most. ``health`` is kept up to date."""
    async with AsyncExitStack() as stack:
        if isinstance(server, Command):
            yield await stack.enter_async_context(pipe_to(server, health))
        else:
            client = await stack.enter_async_context(_client(server, connect))
            yield await stack.enter_async_context(
                streamable_http_client(server.url, http_client=client, max_sse_event_size=LONGEST_ANSWER)
            )


def _client(server: Endpoint, connect: float) -> _WatchedClient:
    know_proxies(os.environ)
    headers = httpx2.Headers(server.headers)
    headers["Accept-Encoding"] = "identity"  # a few bytes could unpack to more than there is memory for
    return _WatchedClient(
        headers=headers,
        # The tool's timeout limits how long an answer may take; the engine counts it.
        timeout=httpx2.Timeout(None, connect=connect, write=_WRITE_TIMEOUT),
        # A connection of its own for each request: one that is kept alive may be closed by the server just when it is
        # used again, and then it is not known whether the server read that request.
        limits=httpx2.Limits(max_keepalive_connections=0),
    )


class _WatchedClient(httpx2.AsyncClient):
    """Sends requests, and records for each how far it got."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - as it takes them
        await request.aread()  # that of a redirect has not been read yet
        sending = sending_of(_method(request))
        # The SDK follows redirects by sending again. What was answered with one may have been done all the same.
        is_first = sending.method is None or not sending.is_sent
        sending.is_sent = True  # until the opposite is proven: this may be cancelled at any point
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            sending.is_sent = not is_first
            return _stand_in(request, sending, _in_words(error))
        except httpx2.TransportError as error:
            return _stand_in(request, sending, _in_words(error))
        sending.status = response.status_code if is_first else None
        if (packing := response.headers.get("content-encoding", "identity").strip().lower()) != "identity":
            await response.aclose()
            return _stand_in(
                request, sending, f"its answer is packed ({storable(packing, 40)}), which was not asked for"
            )
        if isinstance(response.stream, httpx2.AsyncByteStream):
            # Of a stream, the SDK limits each event. The stream itself may go on.
            limit = None if _is_stream(response) else LONGEST_ANSWER
            response.stream = _UpToTheBreak(response.stream, sending, limit)
        return response


def _method(request: httpx2.Request) -> str | None:
    """Return the method of the message in a request; None for an answer, and for a request without a message."""
    if request.method != "POST":
        return None
    said = json.loads(request.content).get("method")
    return said if isinstance(said, str) else None


def _is_stream(response: httpx2.Response) -> bool:
    """Return whether the SDK reads an answer as events; it reads every other one whole, also redirects."""
    kind = response.headers.get("content-type", "").lower()
    return response.request.method != "DELETE" and response.is_success and kind.startswith("text/event-stream")


class _UpToTheBreak(httpx2.AsyncByteStream):
    """An answer that ends where it breaks off, or becomes too long. The SDK then finds no whole answer in it."""

    def __init__(self, stream: httpx2.AsyncByteStream, sending: Sending, limit: int | None) -> None:
        self._stream, self._sending, self._limit = stream, sending, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        try:
            async for part in self._stream:
                read += len(part)
                if self._limit is not None and read > self._limit:
                    self._sending.trouble = f"its answer is longer than {self._limit} bytes"
                    return
                yield part
        except httpx2.TransportError as error:
            self._sending.trouble = _in_words(error)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _stand_in(request: httpx2.Request, sending: Sending, trouble: str) -> httpx2.Response:
    """Return an answer that the SDK gives to this request alone."""
    sending.trouble = trouble
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": sending.trouble}}
    return httpx2.Response(httpx2.codes.BAD_GATEWAY, json=body, request=request)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
