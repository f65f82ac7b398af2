"""A shop on loopback that charges, and misbehaves on request: resets, refusals, hangs, lost and endless answers."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "Idempotency-Key"


class Shop(ThreadingHTTPServer):
    """Counts what it did under each key, and remembers every request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Counter)
        self.charges: Counter[str] = Counter()
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.charged = threading.Event()
        self.closing = threading.Event()
        self._changed = threading.Condition()
        self._busy = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def enter(self, change: int) -> None:
        with self._changed:
            self._busy += change
            self._changed.notify_all()

    def wait_until_quiet(self, others: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._busy <= others)

    def handle_error(self, request: object, client_address: object) -> None:
        """These tests are about customers who leave early."""


class _Counter(BaseHTTPRequestHandler):
    server: Shop
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def handle(self) -> None:
        self.server.enter(1)
        try:
            super().handle()
        finally:
            self.server.enter(-1)

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        self._note(b"")
        match where.path.strip("/").split("/"):
            case ["charges", key]:
                self._answer(200 if self.server.charges[key] else 404, {"id": f"charge-{key}"})
            case ["search"]:
                key = parse_qs(where.query)["key"][0]
                self._answer(200, {"data": [f"charge-{key}"] * self.server.charges[key]})
            case ["status", status]:
                self._answer(int(status), {"answered": int(status)})
            case ["count", key]:
                self._answer(200, self.server.charges[key])
            case ["quiet"]:
                self.server.wait_until_quiet(others=1)
                self._answer(200, None)

    def do_POST(self) -> None:
        where = urlsplit(self.path)
        key = self.headers.get(KEY, "")
        self._note(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        what, *rest = where.path.strip("/").split("/")
        if what != "replayable":
            self.server.charges[key] += what != "not-charged"
        elif not self.server.charges[key]:
            self.server.charges[key] = 1
        self.server.charged.set()
        how, *details = rest or ["answer"]
        getattr(self, f"_then_{how}")(*details)
        self.close_connection = True

    def _then_answer(self) -> None:
        self._answer(201, {"id": f"charge-{self.headers.get(KEY)}"})

    def _then_status(self, status: str) -> None:
        more = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self._answer(int(status), {"answered": int(status)}, more)

    def _then_text(self, charset: str) -> None:
        self._answer(200, "\u00fcber".encode(), {"Content-Type": f"text/plain; charset={charset}"})

    def _then_json(self) -> None:
        self._answer(200, unquote(urlsplit(self.path).query).encode())

    def _then_huge(self, size: str) -> None:
        self._answer(200, b"x" * int(size))

    def _then_reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _then_half(self, status: str) -> None:
        self._answer(int(status), b"only the beginning of", {"Content-Length": "1000"})

    def _then_hang(self) -> None:
        self.server.closing.wait()

    def _then_drip(self) -> None:
        self._answer(200, b"", {"Content-Length": "1000000"})
        while not self.server.closing.wait(0.05):
            self.wfile.write(b".")

    def _note(self, body: bytes) -> None:
        self.server.requests.append((self.command, self.path, dict(self.headers), body))

    def _answer(self, status: int, body: object, more: dict[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), "Set-Cookie": "secret=1"}
        self.send_response(status)
        for name, value in (headers | {"Connection": "close"} | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True


@contextmanager
def open_shop() -> Iterator[Shop]:
    with Shop() as shop:
        thread = threading.Thread(target=shop.serve_forever, name="shop", kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield shop
        finally:
            shop.closing.set()
            shop.shutdown()
            thread.join()
