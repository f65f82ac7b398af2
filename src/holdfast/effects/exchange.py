"""One HTTP exchange within limits: its own connection, a timeout, a maximum size, no redirects."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.effects.errors import Impossible, NotReached
from holdfast.model.canonical import canonical, parse
from holdfast.model.errors import CodecError
from holdfast.model.failure import storable
from holdfast.model.task import JsonValue
from holdfast.redaction import know_proxies, redacted, redacted_data, shown_url, without_beginning

if TYPE_CHECKING:
    import httpx2

KEPT_HEADERS = frozenset({"content-type", "date", "etag", "location", "request-id", "retry-after", "x-request-id"})
"""The headers of an answer that are recorded. Never all of them: cookies are secrets."""

_EXCERPT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An answer, as it is recorded."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    """By lower-case name, only those in KEPT_HEADERS."""
    body: JsonValue = None
    """The data if the server sent JSON; otherwise the text."""
    truncated: bool = False
    """The body was longer than is kept, or its end was lost; this is the beginning, as text."""

    @property
    def is_success(self) -> bool:
        """Whether the server answered that it was done."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the statuses of RFC 9110

    @property
    def excerpt(self) -> str:
        """The beginning of the body, for people."""
        return storable(self.body if isinstance(self.body, str) else canonical(self.body).decode(), _EXCERPT)


@dataclass(frozen=True, slots=True)
class Client:
    """Sends requests and reads answers."""

    httpx2: Any
    """The module."""
    timeout: float
    max_bytes: int

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> HttpResponse:
        """Send a request and return the answer. NotReached if there was no connection to send it on."""
        limit = self.httpx2.Timeout(self.timeout, connect=self.timeout / 2)
        # A new connection each time: the server may close a kept-alive connection just when it is used again, and then
        # it is unknown whether the request was read. No compression: a small answer must not grow when it is unpacked.
        know_proxies(os.environ)
        sent = self.httpx2.Headers(headers)
        sent.setdefault("Accept-Encoding", "identity")
        async with asyncio.timeout(self.timeout), self.httpx2.AsyncClient(timeout=limit) as client:
            try:
                stream = client.stream(method, url, headers=sent, content=content, follow_redirects=False)
                async with stream as response:
                    return await self._read(response)
            except (self.httpx2.ConnectError, self.httpx2.ConnectTimeout) as error:
                raise NotReached(f"no connection to {shown_url(url, path=False)}: {error}") from error
            except (self.httpx2.InvalidURL, self.httpx2.UnsupportedProtocol):
                # The message repeats neither the URL nor the reason: both may contain part of a password.
                raise Impossible(
                    "the URL cannot be used; write a password's @ : / ? # % as %40 %3A %2F %3F %23 %25"
                ) from None

    async def _read(self, response: httpx2.Response) -> HttpResponse:
        received = bytearray()
        is_whole = False
        try:
            async for part in response.aiter_bytes():
                received += part
                if len(received) > self.max_bytes:
                    break
            else:
                is_whole = True
        except self.httpx2.RequestError:
            if response.is_success:
                raise  # it was done, but only part of the answer is known
        headers = {
            name: redacted(value, in_data=True) for name, value in response.headers.items() if name in KEPT_HEADERS
        }
        body: JsonValue = self._text(bytes(received), is_whole=is_whole)
        if is_whole and "json" in headers.get("content-type", ""):
            with suppress(CodecError):  # not valid JSON, or JSON that cannot be stored
                body = redacted_data(parse(bytes(received)))
        return HttpResponse(status=response.status_code, headers=headers, body=body, truncated=not is_whole)

    def _text(self, received: bytes, *, is_whole: bool) -> str:
        """Return a body as text without credentials; a cut body may end with half of one."""
        text = redacted(received.decode("utf-8", "replace"), in_data=True)
        if is_whole:
            return text
        return without_beginning(text.encode()[: self.max_bytes].decode("utf-8", "ignore"))
