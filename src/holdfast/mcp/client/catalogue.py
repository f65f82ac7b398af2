"""What a server lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.mcp.client.declarations import ToolHints


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One tool, in the server's own words."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    hints: ToolHints = field(default_factory=ToolHints)


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """All of them, as they were at one moment."""

    tools: tuple[Listed, ...]
    at: float
    """On the monotonic clock."""
