"""Endpoints that repeat what they were sent: the whole request, with every credential in it.

The HTTP server plays a model endpoint, an API and an MCP server that refuses. ``python echo.py`` is an MCP server on
stdio that repeats its environment and its command line in every answer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        said = f"{self.path} {dict(self.headers.items())} {body.decode()}"
        secrets = " ".join(value for name, value in self.headers.items() if name.lower() not in {"host", "accept"})
        mode = self.path.split("?")[0].rsplit("/", 1)[-1]
        if mode == "completions":
            asked = json.loads(body)
            is_over = any(message["role"] == "tool" for message in asked["messages"])
            return self._complete("text" if is_over else asked["model"], said, secrets)
        status = {"refuse": 400, "break": 500, "mcp": 401}.get(mode, 200)
        return self._answer(status, "application/json", json.dumps({"said": said, "again": [said]}).encode())

    def do_GET(self) -> None:
        self.do_POST()

    def _complete(self, mode: str, said: str, secrets: str) -> None:
        key = self.headers["authorization"].split()[-1]
        if mode in {"401", "500"}:
            error = {"error": {"message": f"Incorrect API key provided: {said}", "code": "invalid_api_key"}}
            return self._answer(int(mode), "application/json", json.dumps(error).encode())
        events: list[Any] = []
        if mode == "error_event":
            events = [{"error": {"message": f"upstream said {said}", "code": 401}}]
        elif mode == "no_chunk":
            events = [f"no JSON: {said}"]
        else:  # an answer that repeats the key, letter by letter, and calls a tool with it
            events = [_chunk({"content": letter}) for letter in f"your key is {key}"]
            if mode == "call":
                arguments = json.dumps({"text": secrets})
                function = {"name": "note", "arguments": arguments}
                events = [_chunk({"tool_calls": [{"index": 0, "id": f"call_{key}", "function": function}]})]
            events.append(_chunk({}, finish_reason="tool_calls" if mode == "call" else "stop"))
        lines = [one if isinstance(one, str) else json.dumps(one) for one in [*events, "[DONE]"]]
        return self._answer(200, "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Location", self.path)
        self.send_header("X-Request-Id", str(self.headers.get("authorization")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


@contextmanager
def serving() -> Iterator[str]:
    """Serve on loopback; the value is ``host:port``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def serve_stdio() -> None:
    """Be an MCP server."""
    said = f"{dict(os.environ)} {sys.argv}"

    def say(number: object, **answer: object) -> None:
        print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)  # noqa: T201 - its way to speak

    print(f"no message: {said}", flush=True)  # noqa: T201
    for line in sys.stdin:
        match json.loads(line):
            case {"method": "initialize", "id": number}:
                server = {"name": "echo", "version": "1"}
                say(
                    number,
                    result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server},
                )
            case {"method": "tools/list", "id": number}:
                tools = [
                    {"name": name, "description": said, "inputSchema": {"type": "object", "description": said}}
                    for name in ("tell", "fail", "refuse")
                ]
                say(number, result={"tools": tools})
            case {"method": "tools/call", "id": number, "params": {"name": "refuse"}}:
                say(number, error={"code": -32602, "message": said})
            case {"method": "tools/call", "id": number, "params": {"name": name}}:
                content = [{"type": "text", "text": said}]
                say(number, result={"content": content, "structuredContent": {said: said}, "isError": name == "fail"})
            case {"id": number}:
                say(number, error={"code": -32601, "message": "no"})


if __name__ == "__main__":
    serve_stdio()
