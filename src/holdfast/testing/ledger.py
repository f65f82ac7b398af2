"""The ledger: the outside world, as a separate process that records in a file what was really done to it.

    python -m holdfast.testing.ledger --file calls.jsonl --port 0

serves HTTP on loopback, prints its port, and keeps every call it accepts as one line of JSON, made durable before the
call is answered. It never deduplicates: tests use it to check that the callers do.

    POST /calls/{effect_id}   record a call; the body is {"name", "body", "caller"}
    GET  /calls/{effect_id}   the calls with this id
    GET  /calls               all of them

A call's query makes it go wrong: ``delay_before_ms`` waits before it is recorded, ``delay_after_ms`` between
that and the answer; ``answer=none`` records it and hangs up; ``refuse=1`` hangs up and records nothing. Once a call
has arrived, it is recorded, even if its caller dies.

Tests and demos use it through Ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, Literal, Self, TypedDict, Unpack
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One call that was made."""

    n: int
    """Counts from 1, over restarts too."""
    at: float
    """When it was recorded, in seconds since the epoch."""
    effect_id: str
    name: str
    body: Any
    caller: int
    """The process that called."""


class Trouble(TypedDict, total=False):
    """What can go wrong with a call. Its caller cannot distinguish ``answer="none"`` from ``refuse=True``."""

    delay_before_ms: float
    delay_after_ms: float
    answer: Literal["none"]
    refuse: Literal[True]


@dataclass(frozen=True, slots=True)
class Ledger:
    """A running ledger. Any process may use it: ``Ledger(path, port)``."""

    path: Path
    port: int
    pid: int | None = None
    """Of its process, if that was started here."""

    @classmethod
    @contextmanager
    def start(cls, path: Path, *, port: int = 0) -> Iterator[Self]:
        """Start the process and wait until it listens; it ends with the block, or with the process that started it."""
        command = [sys.executable, "-m", "holdfast.testing.ledger", "--file", str(path), "--port", str(port)]
        with subprocess.Popen(  # noqa: S603 - this module itself
            [*command, "--until-stdin-closes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            try:
                assert process.stdout is not None
                if not (printed := process.stdout.readline()):
                    raise RuntimeError(f"the ledger did not start: exit code {process.wait()}")
                yield cls(path, int(printed), process.pid)
            finally:
                process.kill()

    def call(self, effect_id: str, name: str, *, body: object = None, **trouble: Unpack[Trouble]) -> Entry:
        """Make a call, and return what was recorded; raises ConnectionError when there is no answer."""
        with closing(http.client.HTTPConnection(_HOST, self.port)) as connection:
            connection.request("POST", _target(effect_id, trouble), _body(name, body))
            response = connection.getresponse()
            return Entry(**_understood(response.status, response.read()))

    async def call_async(self, effect_id: str, name: str, *, body: object = None, **trouble: Unpack[Trouble]) -> Entry:
        """Make a call without a thread: cancelling it hangs up."""
        target, sent = _target(effect_id, trouble).encode(), _body(name, body)
        reader, writer = await asyncio.open_connection(_HOST, self.port)
        with closing(writer):
            writer.write(b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (target, len(sent), sent))
            head, _, answered = (await reader.read()).partition(b"\r\n\r\n")
        if not head:
            raise http.client.RemoteDisconnected("the ledger hung up without an answer")
        return Entry(**_understood(int(head.split()[1]), answered))

    def seen(self, effect_id: str) -> list[Entry]:
        """Ask the process for the calls with this id; raises ConnectionError if it does not run."""
        with closing(http.client.HTTPConnection(_HOST, self.port)) as connection:
            connection.request("GET", _target(effect_id, {}))
            response = connection.getresponse()
            return [Entry(**entry) for entry in _understood(response.status, response.read())]

    def entries(self) -> list[Entry]:
        """Read the file: everything that was ever recorded, whether the process runs or not."""
        return _parse(_whole_lines(self.path))

    def duplicates(self) -> dict[str, int]:
        """Return the effects that happened more than once, with their counts."""
        counts = Counter(entry.effect_id for entry in self.entries())
        return {effect_id: count for effect_id, count in counts.items() if count > 1}


def _target(effect_id: str, trouble: Trouble) -> str:
    return f"/calls/{quote(effect_id, safe='')}?{urlencode(trouble)}"


def _body(name: str, body: object) -> bytes:
    return json.dumps({"name": name, "body": body, "caller": os.getpid()}).encode()


def _understood(status: int, answered: bytes) -> Any:  # noqa: ANN401 - an entry, or a list of them
    if status != HTTPStatus.OK:
        raise ValueError(f"the ledger answered {status}: {answered.decode()}")
    return json.loads(answered)


def _whole_lines(path: Path) -> bytes:
    """Read the file without an unfinished last line: no caller got an answer for it."""
    written = path.read_bytes() if path.exists() else b""
    return written[: written.rfind(b"\n") + 1]


def _parse(lines: bytes) -> list[Entry]:
    return [Entry(**json.loads(line)) for line in lines.splitlines()]


# The process


class _Book:
    """The file. Only one process may write to it."""

    def __init__(self, path: Path) -> None:
        kept = _whole_lines(path)
        self._entries = _parse(kept)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, len(kept))
        self._lock = threading.Lock()

    def record(self, effect_id: str, *, name: str, body: object, caller: int) -> Entry:
        with self._lock:
            number = len(self._entries) + 1
            entry = Entry(n=number, at=time.time(), effect_id=effect_id, name=name, body=body, caller=caller)
            os.write(self._file, json.dumps(asdict(entry)).encode() + b"\n")
            os.fsync(self._file)
            self._entries.append(entry)
            return entry

    def entries(self, effect_id: str) -> list[Entry]:
        """Return the entries with this id, or all for an empty id."""
        with self._lock:
            return [entry for entry in self._entries if effect_id in {"", entry.effect_id}]


class _Server(ThreadingTCPServer):  # not HTTPServer: it looks up the host's name, which may take long
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128  # many callers may connect at the same moment

    def __init__(self, port: int, book: _Book) -> None:
        super().__init__((_HOST, port), _Handler)
        self.book = book

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own
        """Do not report callers that are gone: tests kill them on purpose."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        url, size = urlsplit(self.path), int(self.headers["Content-Length"])
        sent, trouble = self.rfile.read(size), dict(parse_qsl(url.query))
        if len(sent) < size or "refuse" in trouble:  # fewer bytes than announced: the caller was killed while sending
            return
        if effect_id := _effect_id(url.path):
            self._record(effect_id, json.loads(sent), trouble)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_GET(self) -> None:
        effect_id = _effect_id(urlsplit(self.path).path)
        if effect_id is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._answer([asdict(entry) for entry in self.server.book.entries(effect_id)])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Print nothing: the file is the log."""

    def _record(self, effect_id: str, call: dict[str, Any], trouble: dict[str, str]) -> None:
        time.sleep(float(trouble.get("delay_before_ms", 0)) / 1000)
        entry = self.server.book.record(effect_id, **call)
        time.sleep(float(trouble.get("delay_after_ms", 0)) / 1000)
        if trouble.get("answer") != "none":
            self._answer(asdict(entry))

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _effect_id(path: str) -> str | None:
    """Return the id in the path, an empty id for all calls, and None for an unknown path."""
    _, folder, *rest = unquote(path).split("/", 2)
    return "".join(rest) if folder == "calls" else None


def main(arguments: Sequence[str]) -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.ledger", description="Count what really happens.")
    parser.add_argument("--file", type=Path, required=True, help="where calls are recorded; existing lines are kept")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the process that started it ends")
    asked = parser.parse_args(arguments)
    with _Server(asked.port, _Book(asked.file)) as server:
        print(server.server_address[1], flush=True)  # noqa: T201 - read by the process that started it
        if asked.until_stdin_closes:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            sys.stdin.buffer.read()
        else:
            server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
