"""A server of the handshake era, by hand: it knows no ``server/discover``, and can misbehave on request.

    python old_server.py            over stdio
    python old_server.py PORT       over HTTP, with sessions

MISBEHAVE in its environment is JSON: {"list": [...]} replaces its tools, {"endless": true} never stops listing,
{"answer": {...}} is the answer to every call, {"token": "..."} the token it requires, {"pack": true} compresses its
answers over HTTP.

Over HTTP a text may be an order: "hang up" and "break off" end a call without an answer or amid it, "wait" waits until
another call says "go", "port" answers with the client's port, "calls" with the calls so far, "accepts" with the
encodings that the request takes, "stream" with a long event, "chatter" with many short ones before, "resume" with a
stream that ends and promises more, "ask" with a stream that asks back, refuses the reply, and ends. "forget me" forgets
all sessions.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TROUBLE: dict[str, Any] = json.loads(os.environ.get("MISBEHAVE", "{}"))
ECHO = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            outcome: dict[str, Any] = {
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "old", "version": "1"},
                }
            }
        case "tools/list":
            outcome = {"result": {"tools": TROUBLE.get("list", [ECHO])}}
            if TROUBLE.get("endless"):
                outcome["result"] |= {"nextCursor": "more", "tools": [ECHO] * 100}
        case "tools/call":
            said = request["params"].get("arguments", {}).get("text", "")
            outcome = TROUBLE.get("answer", {"result": {"content": [{"type": "text", "text": said}]}})
        case method:
            outcome = {"error": {"code": -32601, "message": f"no method {method}"}}
    return {"jsonrpc": "2.0", "id": request["id"], **outcome}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sessions: set[str] = set()  # noqa: RUF012 - of all connections
    gone = threading.Event()
    notified = threading.Event()
    calls: list[str] = []  # noqa: RUF012

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._reply(405, None)

    def do_DELETE(self) -> None:
        self.sessions.discard(self.headers.get("Mcp-Session-Id", ""))
        self._reply(200, None)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, session = request.get("method"), self.headers.get("Mcp-Session-Id")
        wanted = TROUBLE.get("token")
        if wanted is not None and self.headers.get("Authorization") != f"Bearer {wanted}":
            self._reply(401, None)
        elif method not in {"initialize", "server/discover"} and session not in self.sessions:
            self._reply(404, None)
        elif method is None:
            self._reply(404, None)
            self.notified.set()
        elif method == "tools/call":
            self._obey(request)
        else:
            opened = {}
            if method == "initialize":
                opened = {"Mcp-Session-Id": uuid.uuid4().hex}
                self.sessions.add(opened["Mcp-Session-Id"])
            is_request = "id" in request
            self._reply(200 if is_request else 202, answer(request) if is_request else None, opened)

    def _obey(self, request: dict[str, Any]) -> None:
        said = answer(request)
        order = request["params"].get("arguments", {}).get("text")
        self.calls.append(order)
        match order:
            case "wait":
                self.gone.wait()
            case "go":
                self.gone.set()
            case "port":
                said["result"] = {"content": [{"type": "text", "text": str(self.client_address[1])}]}
            case "calls":
                said["result"] = {"content": [{"type": "text", "text": " ".join(self.calls)}]}
            case "accepts":
                said["result"] = {"content": [{"type": "text", "text": self.headers["Accept-Encoding"]}]}
            case "forget me":
                self.sessions.clear()
        if not self._misbehave(order, said):
            self._reply(200, said)

    def _misbehave(self, order: str, said: dict[str, Any]) -> bool:
        match order:
            case "hang up":
                self.close_connection = True
            case "break off":
                self._reply(200, said, cut=5)
            case "stream":
                said["result"] = {"content": [{"type": "text", "text": "x" * 3_000_000}]}
                self._reply(200, said, is_event=True)
            case "chatter":
                note = {
                    "jsonrpc": "2.0",
                    "method": "notifications/message",
                    "params": {"level": "info", "data": "x" * 99},
                }
                said["result"] = {"content": [{"type": "text", "text": "at last"}]}
                events = [*[note] * 100, said]
                self._stream(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))
            case "resume":
                self._stream(b"id: 1\ndata: \n\n")
            case "ask":
                question = {"jsonrpc": "2.0", "id": 99, "method": "ping"}
                self._stream(b"data: " + json.dumps(question).encode() + b"\n\n")
                self.notified.wait()
            case _:
                return False
        return True

    def _stream(self, events: bytes) -> None:
        """Begin a stream, which ends with the connection."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(events)
        self.wfile.flush()

    def _reply(
        self,
        status: int,
        body: dict[str, Any] | None,
        headers: dict[str, str] | None = None,
        cut: int | None = None,
        *,
        is_event: bool = False,
    ) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        kind = "application/json" if body else "text/plain"
        if is_event:
            content, kind = b"event: message\ndata: " + content + b"\n\n", "text/event-stream"
        if TROUBLE.get("pack"):
            content, headers = gzip.compress(content), {"Content-Encoding": "gzip", **(headers or {})}
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[:cut])
        self.close_connection = self.close_connection or cut is not None


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
            server.serve_forever()
    else:
        for line in sys.stdin:
            if "id" in (request := json.loads(line)):
                print(json.dumps(answer(request)), flush=True)  # noqa: T201 - that is how it speaks
