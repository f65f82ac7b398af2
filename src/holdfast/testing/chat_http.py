"""The HTTP of a ChatServer: one connection per request, one thread per connection, and every way to break one."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from holdfast.testing.chat_log import ChatLog, Exchange
from holdfast.testing.chat_script import Answer, cut, error, events, whole

HOST = "127.0.0.1"
_LOOK_EVERY = 0.02
_LINGER = "hh" if os.name == "nt" else "ii"

Choose: TypeAlias = Callable[[int, dict[str, Any], dict[str, str]], Answer]
"""Finds the answer to a request: its turn, its body, its headers."""


class HungUp(Exception):
    """The client is gone."""


class HttpServer(ThreadingTCPServer):  # not HTTPServer: it looks up the host's name, which may take long
    """Listens on loopback as soon as it is made."""

    allow_reuse_address = True
    request_queue_size = 128  # many clients may connect at the same moment

    def __init__(self, port: int, log: ChatLog, choose: Choose) -> None:
        super().__init__((HOST, port), _Handler)
        self.log, self.choose = log, choose
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own
        """Give a connection its thread."""
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - socketserver's own
        """Close a connection without the shutdown that socketserver sends first: a reset has to come alone."""
        with self._lock:
            self._connections.discard(request)
            self.close_request(request)

    def hang_up(self) -> None:
        """End every connection, and with it the thread that waits for its client."""
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own
        """Do not report clients that are gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/log":
            self._send(HTTPStatus.OK, self.server.log.to_json(parse_qs(url.query).get("key", ())))
        else:
            self._send(HTTPStatus.NOT_FOUND, error(Answer(text=f"there is no {self.path} here")))

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        sent = self.rfile.read(size)
        if len(sent) < size:  # its client was killed while sending
            return
        if urlsplit(self.path).path != "/v1/chat/completions":
            self._send(HTTPStatus.NOT_FOUND, error(Answer(text=f"there is no {self.path} here")))
            return
        body, headers = json.loads(sent), {name.lower(): value for name, value in self.headers.items()}
        turn = sum(message.get("role") == "assistant" for message in body["messages"])
        exchange = self.server.log.open(turn, body, headers)
        try:
            self._answer(exchange, self.server.choose(turn, body, headers))
        except (HungUp, ConnectionError):
            self.server.log.close(exchange, "hung_up")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Print nothing: there is a log."""

    def _answer(self, exchange: Exchange, answer: Answer) -> None:
        if answer.hang == "before_headers":
            self._wait(None)
        if answer.status == HTTPStatus.OK:
            self._send_body(exchange, answer)
        else:
            self.server.log.close(exchange, "refused")
            self._send(answer.status, error(answer), answer.retry_after)

    def _send_body(self, exchange: Exchange, answer: Answer) -> None:
        parts = _parts(exchange, answer)
        is_cut = answer.cut_at is not None and answer.cut_at < sum(map(len, parts))
        if answer.cut_at is not None:
            parts = cut(parts, answer.cut_at)
        is_chunked = answer.framing == "chunked"
        self._send_head(HTTPStatus.OK, "text/event-stream" if exchange.body.get("stream") else "application/json")
        if is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, part in enumerate(parts):
            if answer.hang == "mid_stream" and number == len(parts) // 2:
                self._wait(None)
            self._keep_waiting(answer, is_chunked=is_chunked)
            data = _framed(part, is_chunked=is_chunked)
            if number == len(parts) - 1:
                # Log first, then send: a client that has the answer finds it in the log. Send the end of the body
                # together with its last event: after that the client may be gone.
                broken = is_cut or answer.malformed or answer.error_event is not None
                self.server.log.close(exchange, "broken" if broken else "completed")
                data += b"0\r\n\r\n" if is_chunked and not is_cut else b""
            self.wfile.write(data)
        if is_cut and answer.reset:
            # A linger time of 0 makes the close a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(_LINGER, 1, 0))

    def _keep_waiting(self, answer: Answer, *, is_chunked: bool) -> None:
        if answer.comments:
            self.wfile.write(_framed(b": still at it\n\n", is_chunked=is_chunked))
        self._wait(answer.pause)

    def _wait(self, seconds: float | None) -> None:
        """Send nothing for so many seconds (None: forever); raise HungUp when the client is gone."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _LOOK_EVERY if until is None else min(_LOOK_EVERY, max(0.0, until - time.monotonic()))
            readable, _, _ = select.select([self.connection], [], [], left)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise HungUp
            if until is not None and time.monotonic() >= until:
                return

    def _send(self, status: int, body: bytes, retry_after: str | None = None) -> None:
        self._send_head(status, "application/json")
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_head(self, status: int, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")


def _parts(exchange: Exchange, answer: Answer) -> list[bytes]:
    body = exchange.body
    if not body.get("stream"):
        return [whole(answer, exchange.turn, body["model"])]
    with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return events(answer, exchange.turn, body["model"], with_usage=with_usage)


def _framed(data: bytes, *, is_chunked: bool) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if is_chunked and data else data
