"""A server of the handshake era that obeys one order a call, and answers with its process id.

"noise" comes with bytes that are not UTF-8, "forget" gets no answer, "hang" and every order after it get none.
"close" is answered, and is the last answer; "leave" is answered, and then the process ends. The latter three
leave a child, whose process id is the last line of the file that is named in the command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def say(request: dict[str, Any], result: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)  # noqa: T201 - its way to speak


def leave_a_child() -> None:
    away = subprocess.DEVNULL
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], stdin=away, stdout=away, stderr=away
    )
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{child.pid}\n")


def obey(request: dict[str, Any]) -> None:
    order = request["params"]["arguments"]["order"]
    if order in {"hang", "close", "leave"}:
        leave_a_child()
    if order == "noise":
        os.write(1, b"\xff\xfe oops\n{]\n\n")
    if order == "hang":
        time.sleep(600)
    if order != "forget":
        say(request, {"content": [{"type": "text", "text": str(os.getpid())}]})
    if order == "close":
        os.close(1)
        time.sleep(600)
    if order == "leave":
        os._exit(0)


os.write(1, b"\xc3 starting\n")
for line in sys.stdin:
    match json.loads(line):
        case {"method": "initialize"} as asked:
            server = {"name": "moody", "version": "1"}
            say(asked, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server})
        case {"method": "tools/list"} as asked:
            say(asked, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
        case {"method": "tools/call"} as asked:
            obey(asked)
        case {"id": number}:
            print(json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}}), flush=True)  # noqa: T201
