"""The HTTP client of OpenAIModel: one connection per call, no redirects, no compression, and errors of limited size."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx2
import openai

ERROR_BYTES = 64 << 10
"""How much is read of an error response: only its status and its first words are needed."""

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "content-type", "transfer-encoding"})
"""Headers that do not fit the shortened body of an error. The type is dropped: libraries fail on some charsets."""


class EndpointClient(openai.DefaultAsyncHttpxClient):
    """Sends requests to one endpoint and to no other."""

    def __init__(self, timeout: httpx2.Timeout) -> None:
        """``timeout`` limits the time without any data."""
        super().__init__(
            timeout=timeout,
            # No connection outlives its call. The endpoint may close a kept connection just when it is used again,
            # which would cost a recorded try. A call takes seconds, so a new connection costs little.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            # A redirect would send the whole conversation to a server that the user has not named.
            follow_redirects=False,
            # A few compressed bytes could expand to more than the memory.
            headers={"Accept-Encoding": "identity"},
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - as it takes them
        """Send a request. An error response is read here, because the library would read all of it."""
        response = await super().send(request, **options)
        if response.is_success:
            return response
        received = bytearray()
        # The status counts, even if the rest cannot be read.
        with suppress(httpx2.HTTPError):
            async for part in response.aiter_bytes():
                received += part
                if len(received) > ERROR_BYTES:
                    break
        await response.aclose()
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_WIRE]
        content = bytes(received[:ERROR_BYTES])
        return httpx2.Response(response.status_code, headers=headers, content=content, request=request)
