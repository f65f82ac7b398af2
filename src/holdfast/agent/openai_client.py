"""The HTTP client under OpenAIModel: one connection a call, no redirects, no packing, and errors of a bounded size."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx2
import openai

ERROR_BYTES = 64 << 10
"""Read of an answer that is no success: its status and a few words count."""

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "content-type", "transfer-encoding"})
"""Headers that do not fit what is kept of an error. Its type goes, too: libraries fail over some of its charsets."""


class EndpointClient(openai.DefaultAsyncHttpxClient):
    """Sends requests to one endpoint and to no other."""

    def __init__(self, timeout: httpx2.Timeout) -> None:
        """``timeout`` is for silence."""
        super().__init__(
            timeout=timeout,
            # No connection outlives its call. One that is kept may be closed by the endpoint just as it is used again,
            # and would cost a recorded try; a call that takes seconds can afford to connect. And nothing is left open.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            # A redirect would take the whole conversation to a server that the user has not named.
            follow_redirects=False,
            # A few bytes could unpack to more than there is memory for.
            headers={"Accept-Encoding": "identity"},
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - as it takes them
        """Send a request. What is no success is read here, because the library would read all of it."""
        response = await super().send(request, **options)
        if response.is_success:
            return response
        received = bytearray()
        # The status counts, whatever becomes of the rest.
        with suppress(httpx2.HTTPError):
            async for part in response.aiter_bytes():
                received += part
                if len(received) > ERROR_BYTES:
                    break
        await response.aclose()
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_WIRE]
        content = bytes(received[:ERROR_BYTES])
        return httpx2.Response(response.status_code, headers=headers, content=content, request=request)
