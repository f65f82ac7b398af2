"""The tools of ``world_server.py`` over stdio, by hand: python small_world.py CALLS

It answers as the SDK's server does, byte for byte (``test_small_world.py`` compares them), and starts in a tenth of the
time, because it does not import the SDK. Each call has a thread, so that one that waits holds up no other.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = Path(sys.argv[1])
GATE = CALLS.with_suffix(".gate")
INFO = {"io.modelcontextprotocol/serverInfo": {"name": "world", "version": ""}}
_speaking = threading.Lock()


def schema(name: str, *required: str, **optional: dict[str, Any]) -> dict[str, Any]:
    properties = {one: {"title": one.title(), "type": "string"} for one in required} | optional
    described = {"type": "object", "properties": properties, "title": f"{name}Arguments"}
    return described | ({"required": list(required)} if required else {})


def tool(
    name: str, description: str, *required: str, hints: dict[str, bool] | None = None, **optional: dict[str, Any]
) -> dict[str, Any]:
    result = {"properties": {"result": {"title": "Result", "type": "string"}}, "required": ["result"]}
    output: dict[str, Any] = result | {"title": f"{name}Output", "type": "object"}
    if name == "send":
        output = {"additionalProperties": True, "title": "sendDictOutput", "type": "object"}
    described = {"name": name, "description": description, "inputSchema": schema(name, *required, **optional)}
    described |= {} if name == "picture" else {"outputSchema": output}
    return described if hints is None else described | {"annotations": hints}


HARMLESS = {"destructiveHint": False, "idempotentHint": True, "readOnlyHint": True}
TOOLS = [
    tool("search", "Look something up.", "query", hints={"readOnlyHint": True}),
    tool("send", "Send something to an address.", "to", copies={"default": 1, "title": "Copies", "type": "integer"}),
    tool("wait_and_send", "Send something, and say so when the gate is open.", "to"),
    tool("fall_over", "End the server in the middle of a call."),
    tool("fail", "Fail.", "why"),
    tool("wipe", "Destroy everything.", hints={"destructiveHint": True, "readOnlyHint": False}),
    tool("innocent", "Say that it only looks, whatever it does.", hints=HARMLESS),
    tool("picture", "Show a picture."),
    tool("long_text", "Say a lot."),
]


def note(name: str, params: dict[str, Any], arguments: dict[str, Any]) -> None:
    effect_id = params.get("_meta", {}).get("io.holdfast/effect_id")
    with CALLS.open("a") as file:
        file.write(json.dumps({"tool": name, "arguments": arguments, "effect_id": effect_id}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def call(params: dict[str, Any]) -> dict[str, Any]:
    name, given = params["name"], params.get("arguments", {})
    known = next(one["inputSchema"]["properties"] for one in TOOLS if one["name"] == name)
    arguments = {one: given.get(one, known[one].get("default")) for one in known}
    note(name, params, arguments)
    return DEEDS[name](**arguments) | {"isError": name == "fail"}


def search(query: str) -> dict[str, Any]:
    return text(f"nothing about {query}")


def send(to: str, copies: int) -> dict[str, Any]:
    sent = {"sent": to, "copies": copies}
    return {"content": [{"text": json.dumps(sent, indent=2), "type": "text"}], "structuredContent": sent}


def wait_and_send(to: str) -> dict[str, Any]:
    while not GATE.exists():
        time.sleep(0.01)
    return text(f"sent to {to}")


def fall_over() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def fail(why: str) -> dict[str, Any]:
    return {"content": [{"text": f"Error executing tool fail: {why}", "type": "text"}]}


def picture() -> dict[str, Any]:
    report = {"uri": "file:///report.txt", "mimeType": "text/plain", "text": "all is well"}
    data = base64.b64encode(bytes(300_000)).decode()
    return {
        "content": [
            {"text": "here it is", "type": "text"},
            {"data": data, "mimeType": "image/png", "type": "image"},
            {"resource": report, "type": "resource"},
        ]
    }


def text(words: str) -> dict[str, Any]:
    return {"content": [{"text": words, "type": "text"}], "structuredContent": {"result": words}}


DEEDS: dict[str, Callable[..., dict[str, Any]]] = {
    "search": search,
    "send": send,
    "wait_and_send": wait_and_send,
    "fall_over": fall_over,
    "fail": fail,
    "wipe": lambda: text("wiped"),
    "innocent": lambda: text("done"),
    "picture": picture,
    "long_text": lambda: text("much ado " * 300_000),
}


def answer(request: dict[str, Any]) -> None:
    match request["method"]:
        case "server/discover":
            lists = {"listChanged": True}
            result: dict[str, Any] = {
                "cacheScope": "private",
                "capabilities": {"prompts": lists, "resources": lists | {"subscribe": True}, "tools": lists},
                "supportedVersions": ["2026-07-28"],
                "ttlMs": 0,
            }
        case "tools/list":
            result = {"cacheScope": "private", "tools": TOOLS, "ttlMs": 0}
        case "tools/call":
            result = call(request["params"])
        case method:
            say({"id": request["id"], "error": {"code": -32601, "message": f"no method {method}"}})
            return
    say({"id": request["id"], "result": result | {"resultType": "complete", "_meta": INFO}})


def say(words: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0"} | words)
    with _speaking:
        print(line, flush=True)  # noqa: T201 - its way to speak


for said in sys.stdin:
    if "id" in (asked := json.loads(said)):
        threading.Thread(target=answer, args=(asked,), daemon=True).start()
