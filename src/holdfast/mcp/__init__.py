"""Holdfast and the Model Context Protocol: agent state as shared, standard resources.

server       the server, whichever way it is reached; stdio and HTTP
resources/   what can be read: states, steps, checkpoints, the queue, artifacts, facts
toolset/     what can be called: submit, share state, take a task over and hand it back, remember
prompts      briefings for whoever goes on with a task
watching     who watches what, and when it changed; subscribing: how both eras of clients ask for it
protocol_tasks   the extension for tasks of the protocol
pace         how many requests of a client on stdio are under way at once
addresses    URIs; forms, excerpts: what is shown, and how much of it; desk: one request, and its caller
client/      the other way round: the tools of any MCP server, for an Agent
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.mcp.client import (
        AnswerUnclear,
        CallFailed,
        CallRefused,
        CannotStart,
        Declared,
        ServerAway,
        ServerTools,
        tools,
    )

__all__ = [
    "AnswerUnclear",
    "CallFailed",
    "CallRefused",
    "CannotStart",
    "Declared",
    "ServerAway",
    "ServerTools",
    "tools",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    """Import what only agents need that use the tools of others."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.client"), name)
