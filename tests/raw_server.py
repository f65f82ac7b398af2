"""A server on loopback that answers with raw bytes: what no HTTP library would send can be sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

DONE = b"data: [DONE]\n\n"


@dataclass
class RawServer:
    """Where it listens, and the heads of the requests it got."""

    url: str
    requests: list[str] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    """A client left before the end of an answer."""


@asynccontextmanager
async def raw_server(answer: Callable[[int], Iterable[bytes]]) -> AsyncIterator[RawServer]:
    """Serve what ``answer`` returns for the first request, the second one, and so on; then close the connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lengths = [line.partition(":")[2] for line in head.split("\r\n") if line.lower().startswith("content-length:")]
        await reader.readexactly(int(lengths[0]) if lengths else 0)
        server.requests.append(head)
        try:
            for part in answer(len(server.requests)):
                writer.write(part)
                await writer.drain()
        except ConnectionError:
            server.hung_up.set()
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1")
    server = RawServer(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    async with listening:
        yield server


def head(status: str = "200 OK", kind: str = "text/event-stream", **headers: str) -> bytes:
    """Return the head of an answer; ``retry_after="7"`` is the header Retry-After."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}\r\n".encode()


def event(data: object) -> bytes:
    """Return an event of a stream; bytes are sent as they are."""
    return b"data: %b\n\n" % (data if isinstance(data, bytes) else json.dumps(data).encode())


def chunk(delta: dict[str, Any] | None = None, finish_reason: str | None = None, **more: Any) -> bytes:  # noqa: ANN401
    """Return an event with a piece of a chat completion."""
    return event({"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason}], **more})


def text(said: str, **more: Any) -> list[bytes]:  # noqa: ANN401
    """Return a whole answer."""
    return [head(), chunk({"content": said}), chunk(None, "stop", **more), DONE]
