"""Holdfast and the Model Context Protocol: agent state as shared, standard resources.

server       the server, whichever way it is reached; stdio and HTTP
resources/   what can be read: states, steps, checkpoints, the queue, artifacts, facts
tools/       what can be called: submit, share state, take a task over and hand it back, remember
prompts      briefings for whoever goes on with a task
watching     subscriptions: who watches what, and when it changed
client/      the other way round: the tools of any MCP server, for an Agent
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.mcp.client import AnswerUnclear, CallFailed, CallRefused, Declared, ServerAway, ServerTools, tools_of

# Not called "tools": that is the package of the server's own.
__all__ = ["AnswerUnclear", "CallFailed", "CallRefused", "Declared", "ServerAway", "ServerTools", "tools_of"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    """Import what only agents need that use the tools of others."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.client"), name)
