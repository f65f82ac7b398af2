"""What every answer carries, refusals in words, and the access log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger(__name__)

_NO_STORE: Final = b"no-store"
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
_CACHE_CONTROL: Final = b"cache-control"


class Answers:
    """Sees to the headers of whatever is answered, says what broke, and writes the access log."""

    def __init__(self, application: ASGIApp) -> None:
        """Stand in front of ``application``."""
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        began, status = time.monotonic(), 0

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": _completed(message.get("headers", ()))}
            await send(message)

        try:
            await self._application(scope, receive, with_headers)
        except Exception:
            _log.exception("a defect in answering %s %s", scope["method"], scope["path"])
            if status:
                raise  # half an answer is out: the connection has to break, or it would pass for a whole one
            await answer(with_headers, HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "a defect; the server's log has it"})
        finally:
            # Without the query, which is nobody's business and may hold what does not belong there.
            took = (time.monotonic() - began) * 1000
            _log.debug("%s %s: %d after %.0f ms", scope["method"], scope["path"], status, took)


async def answer(
    send: Send, status: HTTPStatus, document: Mapping[str, str], headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Answer with a JSON document."""
    body = json.dumps(document).encode() + b"\n"
    kind, length = (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status.value, "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": body})


def _completed(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers with ours; what a stream tells the proxies on its way stays beside it."""
    said = [value for name, value in headers if name.lower() == _CACHE_CONTROL and _NO_STORE not in value]
    kept = [(name, value) for name, value in headers if name.lower() not in {_CACHE_CONTROL, _NO_SNIFFING[0]}]
    return [*kept, _NO_SNIFFING, (_CACHE_CONTROL, b", ".join([*said, _NO_STORE]))]
