"""What to put into the configuration of an MCP client: to start ``holdfast mcp``, or to reach ``holdfast serve``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, assert_never
from urllib.parse import unquote, urlsplit

from holdfast.model.errors import InvalidValue
from holdfast.redaction import without_password
from holdfast.service.session import service_to_serve
from holdfast.settings import PREFIX, current_settings, is_postgres, store_options

NAME: Final = "holdfast"
BEARER: Final = "Bearer YOUR-TOKEN"

_TOKEN_VARIABLE: Final = "HOLDFAST_API_TOKEN"  # noqa: S105 - where a secret is, not the secret
_TOKEN_INPUT: Final = "holdfast-token"  # noqa: S105 - as above
_ESCAPED: Final = str.maketrans({"%": "%25", "?": "%3F", "#": "%23"})
"""Characters with a meaning of their own in a URL."""


class McpClient(StrEnum):
    """A program whose configuration can be printed."""

    JSON = "json"
    """The form that most clients take."""
    CLAUDE_CODE = "claude-code"
    CLAUDE_DESKTOP = "claude-desktop"
    CLINE = "cline"
    CODEX = "codex"
    CURSOR = "cursor"
    VSCODE = "vscode"
    WINDSURF = "windsurf"


@dataclass(frozen=True, slots=True)
class Printed:
    """A configuration, and what is left to do with it."""

    text: str
    to_do: tuple[str, ...] = ()


def to_start(client: McpClient, application: str | None, database_url: str | None, options: Sequence[str]) -> Printed:
    """Return the text with which a client starts the server, with absolute paths: clients start it in any folder.

    ``options`` are those of ``holdfast mcp``, apart from where its store is.
    """
    arguments, environment = _store(application, database_url)
    arguments = ["-m", NAME, "mcp", *arguments, *options]
    if client is not McpClient.JSON and "--name" not in options:
        arguments += ["--name", client]  # or histories could not distinguish the clients of one user
    entry: dict[str, Any] = {"command": sys.executable, "args": arguments} | (
        {"env": environment} if environment else {}
    )
    match client:
        case McpClient.CLAUDE_CODE:
            given = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
            text = shlex.join(["claude", "mcp", "add", NAME, *given, "--", sys.executable, *arguments])
        case McpClient.VSCODE:
            text = _json({"servers": {NAME: {"type": "stdio", **entry}}})
        case McpClient.CODEX:
            text = _toml(entry)
        case McpClient.JSON | McpClient.CLAUDE_DESKTOP | McpClient.CLINE | McpClient.CURSOR | McpClient.WINDSURF:
            text = _json({"mcpServers": {NAME: entry}})
        case _:
            assert_never(client)
    return Printed(text, ("put the password where *** stands; none is printed",) if "***" in text else ())


def to_reach(client: McpClient, url: str) -> Printed:
    """Return the text with which a client reaches a server that runs. No token is in it, only the place for one."""
    _check(url)
    headers = {"Authorization": BEARER}
    entry: dict[str, Any] = {"url": url, "headers": headers}
    fill_in = ("put a token of that server where YOUR-TOKEN stands, and keep that file to yourself",)
    match client:
        case McpClient.CLAUDE_CODE:
            header = f"Authorization: {BEARER}"
            text = shlex.join(["claude", "mcp", "add", "--transport", "http", NAME, url, "--header", header])
            return Printed(text, fill_in)
        case McpClient.VSCODE:
            asked = {"type": "promptString", "id": _TOKEN_INPUT, "description": "Token of Holdfast", "password": True}
            entry = {"type": "http", "url": url, "headers": {"Authorization": f"Bearer ${{input:{_TOKEN_INPUT}}}"}}
            return Printed(_json({"inputs": [asked], "servers": {NAME: entry}}), ("VS Code will ask for the token",))
        case McpClient.CODEX:
            text = _toml({"url": url, "bearer_token_env_var": _TOKEN_VARIABLE})
            return Printed(text, (f"Codex will read the token from {_TOKEN_VARIABLE}; set it where Codex starts",))
        case McpClient.CLAUDE_DESKTOP:
            raise InvalidValue("Claude Desktop can only start a server of its own; leave --url out")
        case McpClient.WINDSURF:
            entry = {"serverUrl": url, "headers": headers}
        case McpClient.CLINE:
            entry = {"type": "streamableHttp", **entry}
        case McpClient.JSON | McpClient.CURSOR:
            pass
        case _:
            assert_never(client)
    return Printed(_json({"mcpServers": {NAME: entry}}), fill_in)


def _store(application: str | None, database_url: str | None) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and variables for the store that would be served from this folder."""
    settings = current_settings()
    url = service_to_serve(application, database_url).url
    arguments: list[str] = []
    environment: dict[str, str] = {}
    if target := application or settings["application"]:
        arguments.append(target)
        environment["PYTHONPATH"] = str(Path.cwd() if settings.file is None else settings.file.parent)
    shown = without_password(url)
    if shown == url:
        arguments += ["--database-url", _absolute(url)]
    # A shared configuration file must not have a password in it; a user who has the password fills it in.
    elif target is None or url == settings["database_url"]:
        environment["HOLDFAST_DATABASE_URL"] = shown
    elif database_url is not None:
        arguments += ["--database-url", shown]
    # Where the application names its store itself, its code has the password.
    for name, value in store_options(url).items():
        environment[f"{PREFIX}{name.upper()}"] = without_password(value) if name == "listen_url" else str(value)
    return arguments, environment


def _absolute(url: str) -> str:
    scheme, separator, path = url.partition(":///")
    if not separator or is_postgres(url) or path.startswith("/"):
        return url
    return f"{scheme}:///{str((Path.cwd() / unquote(path)).resolve()).translate(_ESCAPED)}"


def _check(url: str) -> None:
    """Refuse a URL that is not valid. The message does not repeat it: it may hold a secret."""
    wrong = InvalidValue("--url takes the whole address of a server's MCP, such as http://127.0.0.1:8787/mcp")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - read when it is asked for
    except ValueError:  # an invalid port, or half an IPv6 address
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not parts.path.strip("/"):
        raise wrong
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidValue("--url takes no password and nothing behind the path; a token is sent in a header")


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _toml(entry: dict[str, Any]) -> str:
    """Return the entry as TOML: JSON strings, and lists of them, are valid TOML."""
    lines = [f"[mcp_servers.{NAME}]"]
    for key, value in entry.items():
        pairs = ", ".join(f"{name} = {json.dumps(one)}" for name, one in value.items()) if key == "env" else ""
        lines.append(f"{key} = {{ {pairs} }}" if pairs else f"{key} = {json.dumps(value)}")
    return "\n".join(lines)
