"""What to put into the configuration of an MCP client, so that it starts ``holdfast mcp``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.engine.settings import current_settings, is_postgres
from holdfast.store.url import without_password

NAME = "holdfast"


def snippet(client: str, application: str | None, database_url: str | None, options: Sequence[str]) -> str:
    """Return the text for a client: complete, with absolute paths, because clients start servers wherever they are.

    ``options`` are those of ``holdfast mcp``, apart from where its store is.
    """
    command, arguments, environment = _start(application, database_url, options)
    match client:
        case "claude-code":
            given = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
            return shlex.join(["claude", "mcp", "add", NAME, *given, "--", command, *arguments])
        case "vscode":
            return _json({"servers": {NAME: {"type": "stdio", **_entry(command, arguments, environment)}}})
        case "codex":
            return _toml(command, arguments, environment)
    return _json({"mcpServers": {NAME: _entry(command, arguments, environment)}})


def _start(
    application: str | None, database_url: str | None, options: Sequence[str]
) -> tuple[str, list[str], dict[str, str]]:
    settings = current_settings()
    url, environment = str(database_url or settings["database_url"]), {}
    arguments = ["-m", NAME, "mcp"]
    if target := application or settings["application"]:
        arguments.append(target)
        environment["PYTHONPATH"] = str(Path.cwd() if settings.file is None else settings.file.parent)
    if without_password(url) == url:
        arguments += ["--database-url", _absolute(url)]
    else:
        # A password belongs into no configuration file that is shared; whoever has it fills it in.
        environment["HOLDFAST_DATABASE_URL"] = without_password(url)
    return sys.executable, [*arguments, *options], environment


def _absolute(url: str) -> str:
    scheme, separator, path = url.partition(":///")
    if not separator or is_postgres(url) or path.startswith("/"):
        return url
    return f"{scheme}:///{(Path.cwd() / path).resolve()}"


def _entry(command: str, arguments: Sequence[str], environment: dict[str, str]) -> dict[str, object]:
    entry: dict[str, object] = {"command": command, "args": list(arguments)}
    return entry | {"env": environment} if environment else entry


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _toml(command: str, arguments: Sequence[str], environment: dict[str, str]) -> str:
    """Write the few lines it takes; a JSON string is a TOML string."""
    lines = [f"[mcp_servers.{NAME}]", f"command = {json.dumps(command)}", f"args = {json.dumps(list(arguments))}"]
    if environment:
        given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in environment.items())
        lines.append(f"env = {{ {given} }}")
    return "\n".join(lines)
