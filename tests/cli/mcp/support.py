"""What ``holdfast mcp --print-config`` prints, read as each client reads it."""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.project.support import holdfast

STARTING = ("json", "claude-code", "claude-desktop", "cline", "codex", "cursor", "vscode", "windsurf")


def printed(
    folder: Path, *arguments: str, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Print a configuration."""
    return holdfast(folder, "mcp", "--print-config", *arguments, check=True, **(settings or {}))


def entry(client: str, text: str) -> dict[str, Any]:
    """Return what a client reads: the entry of the server."""
    match client:
        case "claude-code":
            return _of_the_command(shlex.split(text))
        case "codex":
            read = tomllib.loads(text)["mcp_servers"]
        case "vscode":
            read = json.loads(text)["servers"]
        case _:
            read = json.loads(text)["mcpServers"]
    found = read["holdfast"]
    assert isinstance(found, dict)
    return found


def _of_the_command(words: list[str]) -> dict[str, Any]:
    assert words[:3] == ["claude", "mcp", "add"]
    if "--" not in words:
        return {"words": words[3:]}
    options, started = words[3 : words.index("--")], words[words.index("--") + 1 :]
    given = dict(pair.split("=", 1) for pair in options[1:] if pair != "--env")
    return {"command": started[0], "args": started[1:]} | ({"env": given} if given else {})


def option(found: Mapping[str, Any], name: str) -> str | None:
    """Return the value of an option among the arguments of an entry."""
    arguments = found["args"]
    return arguments[arguments.index(name) + 1] if name in arguments else None


def write_application(folder: Path, url: str | None, options: str = "") -> None:
    """Write an application with a task and a store of its own."""
    (folder / "app.py").write_text(
        "from holdfast import Holdfast\n"
        f"hold = Holdfast({url!r}{options})\n"
        "@hold.task\n"
        "async def greet(ctx, name):\n"
        "    return name\n"
    )
