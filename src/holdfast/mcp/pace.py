"""Pace: how many requests of one client on stdio are under way at once.

The SDK starts each request as it comes, and each answer then waits for its turn on stdout. A client that writes and
never reads would make us keep all of them. Here the next message is read when there is room; the rest stays in the
client's pipe, which fills up and holds the client back.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared.message import SessionMessage

MOST_UNDER_WAY = 256
"""Requests. Where that many are under way, the next request, and all after it, wait for one of them to end."""

_ENDLESS = "subscriptions/listen"
"""A stream does not count: it does not end by itself, and has a limit of its own."""


class Pace:
    """The requests that were read and not answered."""

    def __init__(self) -> None:
        """Begin with none."""
        self._under_way: set[object] = set()
        self._ended = anyio.Event()

    async def wait_for_room(self) -> None:
        """Return when one more may begin."""
        while len(self._under_way) >= MOST_UNDER_WAY:
            self._ended = anyio.Event()
            await self._ended.wait()

    async def note_read(self, item: SessionMessage | Exception) -> None:
        """Count a request, once there is room. A cancelled request gets no answer, and is not counted any more."""
        message: Any = item.message if isinstance(item, SessionMessage) else None
        method = getattr(message, "method", None)
        if method == _ENDLESS:
            return
        if method is not None and getattr(message, "id", None) is not None:
            await self.wait_for_room()
            self._under_way.add(message.id)
        elif method == "notifications/cancelled":
            self._end((message.params or {}).get("requestId"))

    def note_written(self, item: SessionMessage) -> None:
        """Count an answer."""
        message: Any = item.message
        if not hasattr(message, "method"):
            self._end(getattr(message, "id", None))

    def _end(self, request_id: object) -> None:
        if isinstance(request_id, str | int):
            self._under_way.discard(request_id)
            self._ended.set()


class PacedInput:
    """The SDK's stream of incoming messages, read as there is room."""

    def __init__(self, stream: Any, pace: Pace) -> None:  # noqa: ANN401 - the SDK does not export its type
        """``stream`` is what the transport made."""
        self._stream, self._pace = stream, pace

    @property
    def last_context(self) -> Any:  # noqa: ANN401 - the SDK looks for it
        """The context in which the last message was sent."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message once there is room for it."""
        item: SessionMessage | Exception = await self._stream.receive()
        await self._pace.note_read(item)
        return item

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        """Yield messages until the client leaves."""
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        """See receive."""
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        await self.aclose()


class PacedOutput:
    """The SDK's stream of outgoing messages; an answer makes room when it is written."""

    def __init__(self, stream: Any, pace: Pace) -> None:  # noqa: ANN401 - as above
        """``stream`` is what the transport made."""
        self._stream, self._pace = stream, pace

    async def send(self, item: SessionMessage) -> None:
        """Write one message."""
        await self._stream.send(item)
        self._pace.note_written(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        await self.aclose()
