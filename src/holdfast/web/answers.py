"""What every answer carries, refusals in words, and the access log."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.redaction import make_logger

_log = make_logger(__name__)

MCP: Final = "/mcp"
"""The path of the Model Context Protocol."""

_NO_STORE: Final = b"no-store"
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
_CACHE_CONTROL: Final = b"cache-control"

_INVALID_REQUEST: Final = -32600
_INTERNAL_ERROR: Final = -32603
"""Error codes of JSON-RPC."""


class Answers:
    """Adds headers to every answer, answers for failures, and writes the access log."""

    def __init__(self, application: ASGIApp) -> None:
        """Stand in front of ``application``."""
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        began, status, is_replaced = time.monotonic(), 0, False

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": _completed(message.get("headers", ()))}
            await send(message)

        async def in_words(message: Message) -> None:
            """Replace the answer to a body that is too large: the library's own has two words of plain text."""
            nonlocal is_replaced
            if message.get("status") == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                is_replaced = True
                words = "the request is larger than what is taken here; send less at once"
                await refuse(scope, with_headers, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
            elif not is_replaced:
                await with_headers(message)

        # What the client sent is quoted, so that it cannot pass for lines of ours. The query is left out: it
        # may hold a secret.
        request = f"{scope['method']} {quote(scope['path'])}"
        try:
            await self._application(scope, receive, in_words)
        except Exception:
            _log.exception("a defect in answering %s", request)
            if status:
                raise  # half an answer is sent: the connection has to break, or it would look like a whole one
            words = "a defect of the server; its log has the details"
            await refuse(scope, with_headers, HTTPStatus.INTERNAL_SERVER_ERROR, words)
        finally:
            _log.debug("%s: %d after %.0f ms", request, status, (time.monotonic() - began) * 1000)


async def refuse(
    scope: Scope, send: Send, status: HTTPStatus, words: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Answer that a request is not done, and why."""
    body = json.dumps(_refusal(scope["path"], status, words)).encode() + b"\n"
    kind, length = (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status.value, "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": body})


def _refusal(path: str, status: HTTPStatus, words: str) -> dict[str, Any]:
    if path != MCP and not path.startswith(f"{MCP}/"):
        return {"error": words}
    # MCP clients show the message of an error of their protocol. For any other error they only show that there was one.
    code = _INTERNAL_ERROR if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _INVALID_REQUEST
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": words}}


def _completed(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers with ours; a stream's own directives for proxies stay."""
    said = [value for name, value in headers if name.lower() == _CACHE_CONTROL and _NO_STORE not in value]
    kept = [(name, value) for name, value in headers if name.lower() not in {_CACHE_CONTROL, _NO_SNIFFING[0]}]
    return [*kept, _NO_SNIFFING, (_CACHE_CONTROL, b", ".join([*said, _NO_STORE]))]
