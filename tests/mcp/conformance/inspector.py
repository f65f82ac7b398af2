"""The inspector's command line: a client that is not ours, over either transport and in either era."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.mcp.conformance.programs import INSPECTOR, node

PATIENCE: Final = 120.0
"""Seconds: for machines busy with other tests."""

TOOL_SAID_NO: Final = 5
"""The exit code for a result that is an error of the tool."""


@dataclass(frozen=True, slots=True)
class Inspector:
    """The inspector, with the address of a server."""

    target: tuple[str, ...]
    era: str
    home: Path

    def ask(self, method: str, *options: str, code: int = 0) -> dict[str, Any]:
        """Ask one thing, and return the result; ``code`` is how the inspector ends."""
        return dict(self.hear(method, *options, code=code)["result"])

    def hear(self, method: str, *options: str, code: int = 0) -> dict[str, Any]:
        """Ask one thing, and return the whole output of the inspector."""
        arguments = [*self.target, "--protocol-era", self.era, "--format", "json", "-q", "--method", method, *options]
        ended = node(INSPECTOR, "--cli", *arguments, home=self.home, timeout=PATIENCE)
        assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
        heard: dict[str, Any] = json.loads(ended.stdout)
        return heard

    def call(self, tool: str, *, code: int = 0, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
        """Call a tool, and return its structured result, which is the same as its text."""
        options = ("--tool-name", tool, "--tool-args-json", json.dumps(arguments))
        result = self.ask("tools/call", *options, code=code)
        assert result.get("isError", False) is (code == TOOL_SAID_NO)
        [content] = result["content"]
        structured: dict[str, Any] = result["structuredContent"]
        assert json.loads(content["text"]) == structured
        return structured


def over_http(url: str, token: str) -> tuple[str, ...]:
    """Say how to reach a server by its address."""
    return (f"{url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {token}")


def over_stdio(database_url: str) -> tuple[str, ...]:
    """Say how to start a server."""
    command = Path(sys.executable).with_name("holdfast")
    return (str(command), "mcp", "--transport", "stdio", "-e", f"HOLDFAST_DATABASE_URL={database_url}")
