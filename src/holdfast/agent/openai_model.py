"""OpenAIModel: any endpoint that speaks the chat-completions protocol, through the official client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdfast.agent.model import ModelError, ModelRefused, Request
from holdfast.agent.openai_errors import (
    names_parameter,
    of_event,
    of_no_connection,
    of_status,
    of_transport,
    of_unreadable,
    shown_url,
)
from holdfast.agent.openai_stream import LAST_EVENT, Assembly, Chunk, EventDecoder
from holdfast.agent.openai_wire import DISPENSABLE, write_request
from holdfast.model.checks import check_name
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import HoldfastError, MissingExtra
from holdfast.model.message import Reply
from holdfast.redaction import cause_of, know, know_body, know_proxies, know_url

if TYPE_CHECKING:
    import httpx2
    import openai

_TO_CONNECT = 10.0
_MALFORMED = frozenset({400, 422})
_NO_KEY = "none"
_UNREADABLE = (ValueError, LookupError, ArithmeticError, RecursionError)
"""What libraries raise for an unexpected answer."""


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint: OpenAI's own, a gateway, or one on this machine.

    ``api_key`` and ``base_url`` come from OPENAI_API_KEY and OPENAI_BASE_URL unless given; with a base_url, the key is
    optional. ``timeout`` is for the whole answer, ``idle_timeout`` for silence: an endpoint that sends nothing for that
    long, not even a comment, counts as hung. ``extra`` is added unchanged to the body of every request, for options of
    an endpoint that are not part of the protocol.

    It never retries by itself: the engine counts and records tries. One object serves any number of calls at the same
    time, in any event loop.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float | timedelta = 600.0,
        idle_timeout: float | timedelta = 60.0,
        temperature: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing is read or opened before the first call: defining an agent needs no key and no extra package."""
        self.name = check_name("the model's name", name)
        self._api_key, self._base_url = api_key, base_url
        know(api_key, os.environ.get("OPENAI_API_KEY"))
        know_url(base_url)
        self._timeout = as_seconds(timeout, what="timeout")
        self._idle_timeout = as_seconds(idle_timeout, what="idle_timeout")
        self._extra = {**({} if temperature is None else {"temperature": temperature}), **(extra or {})}
        know_body(self._extra)
        self._unknown_there: frozenset[str] = frozenset()
        # A client belongs to the loop it was first used in.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"  # without anything secret

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        """Return the complete answer, or raise ModelError. Cancelling this closes the connection."""
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                return await self._answer(await self._client(), request, on_text)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ModelError(
                f"{self.name} did not finish within {self._timeout:g} s; raise timeout= if it may take longer"
            ) from None

    async def aclose(self) -> None:
        """Close what this event loop opened. A later call opens it again."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _answer(self, client: openai.AsyncOpenAI, request: Request, on_text: Callable[[str], None]) -> Reply:
        """Ask, and ask again without a parameter that the endpoint does not know; remember it if that helped."""
        import openai  # noqa: PLC0415 - loaded together with the client

        unknown = self._unknown_there
        while True:
            body = write_request(request, self.name, without=unknown)
            try:
                reply = await self._exchange(client, body, request, on_text)
            except openai.APIStatusError as error:
                blamed = {name for name in DISPENSABLE if name in body and names_parameter(error, name)}
                if error.status_code not in _MALFORMED or not blamed:
                    raise of_status(error) from cause_of(error)
                unknown |= blamed
            else:
                self._unknown_there |= unknown
                return reply

    async def _exchange(
        self, client: openai.AsyncOpenAI, body: dict[str, Any], request: Request, on_text: Callable[[str], None]
    ) -> Reply:
        """Send one request, and read the answer. Raises APIStatusError for an error response."""
        import httpx2  # noqa: PLC0415 - loaded together with the client
        import openai  # noqa: PLC0415

        headers = {"Idempotency-Key": request.effect_id} if request.effect_id else {}
        create: Any = client.chat.completions.with_streaming_response.create
        try:
            async with create(**body, extra_headers=headers, extra_body=self._extra) as response:
                return await _read(response.http_response, Assembly(request, on_text))
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            raise self._broken(error, client.base_url) from cause_of(error)
        except (openai.APIStatusError, HoldfastError):
            raise
        except (openai.OpenAIError, httpx2.InvalidURL, httpx2.StreamError, *_UNREADABLE) as error:
            raise of_unreadable(error, client.base_url.host) from cause_of(error)

    def _broken(self, error: Exception, base_url: httpx2.URL) -> ModelError:
        """Return the error for a failed connection: there is none, nothing arrives, or it was closed."""
        import httpx2  # noqa: PLC0415 - loaded together with the client
        import openai  # noqa: PLC0415

        reason = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
        if isinstance(reason, httpx2.ConnectError | httpx2.ConnectTimeout):
            return of_no_connection(error, base_url, within=self._to_connect)
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            return ModelError(
                f"{shown_url(base_url)} sent nothing for {self._idle_timeout:g} s and counts as hung. "
                "Raise idle_timeout= of the model if it needs longer"
            )
        return of_transport(error, shown_url(base_url))

    @property
    def _to_connect(self) -> float:
        return min(self._idle_timeout, _TO_CONNECT)

    async def _client(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # In a thread: loading the library takes half a second, and heartbeats must not stop for so long.
            made = await asyncio.to_thread(self._make_client)
            client = self._clients.setdefault(loop, made)
        return client

    def _make_client(self) -> openai.AsyncOpenAI:
        try:
            import httpx2  # noqa: PLC0415 - an extra, and slow to load
            import openai  # noqa: PLC0415

            from holdfast.agent.openai_client import EndpointClient  # noqa: PLC0415
        except ImportError as missing:
            raise MissingExtra("openai", "OpenAIModel") from missing
        base_url = self._base_url or os.environ.get("OPENAI_BASE_URL") or None
        api_key = self._api_key or os.environ.get("OPENAI_API_KEY") or (_NO_KEY if base_url else None)
        know(api_key)  # an endpoint may repeat it in any answer
        know_url(base_url)
        know_proxies(os.environ)
        if api_key is None:
            raise ModelRefused(
                f"there is no key to call {self.name} with; set OPENAI_API_KEY, "
                "or OPENAI_BASE_URL to use an endpoint of your own"
            )
        timeout = httpx2.Timeout(self._idle_timeout, connect=self._to_connect)
        try:
            client = openai.AsyncOpenAI(
                api_key=api_key,
                base_url=base_url,
                timeout=timeout,
                max_retries=0,
                http_client=EndpointClient(timeout),
            )
        except httpx2.InvalidURL:  # its message repeats a part of the URL, which may be a password
            raise ModelRefused(
                f"the base_url of {self.name} cannot be read; write https://host:port/v1, and a password's "
                "@ : / ? # % as %40 %3A %2F %3F %23 %25"
            ) from None
        _ = client.chat.completions  # loads the rest of the library, here and not in the event loop
        return client


async def _read(response: httpx2.Response, assembly: Assembly) -> Reply:
    """Read a stream to its last event, and not beyond: some endpoints keep the connection open after it."""
    events = EventDecoder()
    data = None
    async with aclosing(response.aiter_bytes()) as received:
        async for part in received:
            for data in events.feed(part):
                if data == LAST_EVENT:
                    return assembly.reply()
                chunk = Chunk.read(data)
                if chunk.error:
                    raise of_event(chunk.error)
                assembly.add(chunk)
    if data is None:
        raise ModelError(
            f"the endpoint sent no event ({response.headers.get('content-type', 'no content type')}); "
            "check that base_url is the address of a chat-completions API, it often ends in /v1"
        )
    raise ModelError(f"the stream ended without {LAST_EVENT}: it was cut, and the reply was discarded")
