"""The requests under way, and their end when the server stops.

A stream does not end by itself. It would delay the server's stop until the operator kills the process.
Three steps: ``stop`` ends what only listens, ``answered`` gives calls their time, ``end`` ends whatever is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.web.answers import refuse

GRACE: Final = 3.0
"""Seconds in which calls may finish once the server is to stop."""
ERROR_SEND_TIMEOUT: Final = 1.0
"""Seconds in which calls that did not finish may still send an error."""

_LISTENING: Final = frozenset({"GET", "HEAD"})
"""A request with one of these only reads a stream: there is nothing to wait for."""


class Requests:
    """All requests under way."""

    def __init__(self, application: ASGIApp, *, on_stop: Callable[[], None] = lambda: None) -> None:
        """Stand in front of ``application``; ``on_stop`` ends streams of its own that look like calls from here."""
        self._application = application
        self._on_stop = on_stop
        self._under_way: dict[asyncio.Timeout, str] = {}
        self._stopping = False
        self._idle = asyncio.Event()

    def stop(self) -> None:
        """Accept no more requests, and end those that only listen."""
        self._stopping = True
        self._on_stop()
        for patience, method in self._under_way.items():
            if method in _LISTENING:
                _end_in(0, patience)
        self._note()

    async def answered(self) -> None:
        """Wait until the calls under way are answered, or their grace is over."""
        # Not wait_for: up to Python 3.11 it loses a cancel that comes together with what it waits for.
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._idle.wait()

    def end(self) -> None:
        """End the requests that are still under way, after the time for a last answer."""
        for patience in self._under_way:
            _end_in(ERROR_SEND_TIMEOUT, patience)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless the server stops meanwhile."""
        if self._stopping:
            await _send_away(scope, send)
            return
        began = is_whole = False

        async def watched(message: Message) -> None:
            nonlocal began, is_whole
            began = True
            is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        patience = asyncio.timeout(None)
        try:
            async with patience:
                self._under_way[patience] = scope["method"]
                try:
                    await self._application(scope, receive, watched)
                finally:
                    del self._under_way[patience]
                    self._note()
        except TimeoutError:
            if not patience.expired():
                raise
            if not began:
                await _send_away(scope, send)
            elif not is_whole:
                await send({"type": "http.response.body", "body": b""})  # the stream ends; it does not break

    def _note(self) -> None:
        if self._stopping and not self._under_way:
            self._idle.set()


def _end_in(seconds: float, patience: asyncio.Timeout) -> None:
    if not patience.expired():  # a request that was cancelled before may still be ending
        patience.reschedule(asyncio.get_running_loop().time() + seconds)


async def _send_away(scope: Scope, send: Send) -> None:
    words = "the server is stopping; try again in a moment"
    await refuse(scope, send, HTTPStatus.SERVICE_UNAVAILABLE, words, [(b"retry-after", b"5")])
