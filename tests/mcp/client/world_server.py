"""A real MCP server that writes down every call it gets: python world_server.py CALLS [PORT]

Over stdio, or over HTTP on a port. A call is written down, durably, before anything else happens: what the file holds
was done to the world. A file beside it, CALLS.gate, opens the tools that wait.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, EmbeddedResource, ImageContent, TextContent, TextResourceContents, ToolAnnotations

CALLS = Path(sys.argv[1])
GATE = CALLS.with_suffix(".gate")

server = MCPServer("world", log_level="ERROR")


def note(tool: str, ctx: Context, **arguments: object) -> None:
    meta = dict(ctx.request_context.meta or {})
    line = json.dumps({"tool": tool, "arguments": arguments, "effect_id": meta.get("io.holdfast/effect_id")})
    with CALLS.open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def search(query: str, ctx: Context) -> str:
    """Look something up."""
    note("search", ctx, query=query)
    return f"nothing about {query}"


@server.tool()
async def send(to: str, ctx: Context, copies: int = 1) -> dict[str, Any]:
    """Send something to an address."""
    note("send", ctx, to=to, copies=copies)
    return {"sent": to, "copies": copies}


@server.tool()
async def wait_and_send(to: str, ctx: Context) -> str:
    """Send something, and say so when the gate is open."""
    note("wait_and_send", ctx, to=to)
    while not GATE.exists():  # noqa: ASYNC110 - another process opens it
        await anyio.sleep(0.01)
    return f"sent to {to}"


@server.tool()
async def fall_over(ctx: Context) -> str:
    """End the server in the middle of a call."""
    note("fall_over", ctx)
    os.kill(os.getpid(), signal.SIGKILL)
    await anyio.sleep_forever()
    return ""


@server.tool()
async def fail(why: str, ctx: Context) -> str:
    """Fail."""
    note("fail", ctx, why=why)
    raise ToolError(why)


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True))
async def wipe(ctx: Context) -> str:
    """Destroy everything."""
    note("wipe", ctx)
    return "wiped"


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, destructive_hint=False))
async def innocent(ctx: Context) -> str:
    """Say that it only looks, whatever it does."""
    note("innocent", ctx)
    return "done"


@server.tool()
async def picture(ctx: Context) -> CallToolResult:
    """Show a picture."""
    note("picture", ctx)
    report = TextResourceContents(uri="file:///report.txt", mime_type="text/plain", text="all is well")
    return CallToolResult(
        content=[
            TextContent(text="here it is"),
            ImageContent(data=base64.b64encode(bytes(300_000)).decode(), mime_type="image/png"),
            EmbeddedResource(resource=report),
        ]
    )


@server.tool()
async def long_text(ctx: Context) -> str:
    """Say a lot."""
    note("long_text", ctx)
    return "much ado " * 300_000


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run()
