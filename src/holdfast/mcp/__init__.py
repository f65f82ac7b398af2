"""Holdfast and the Model Context Protocol: agent state as shared, standard resources.

The server offers tasks and their state to any client; ``client/`` is the other way round: the tools of any MCP server,
for an Agent.

Modules:

client/            The tools of any MCP server, for an Agent: journaled, approved and retried like the agent's own
resources/         Resources: what can be read, under which URI, and how large it may be
toolset/           Tools: what an agent outside may call
access.py          Access: the service as one caller from outside may use it
addresses.py       The URIs of resources: what each of them names
excerpts.py        Keeping answers small: a model reads them, and its context is limited
forms.py           The JSON that agents are shown: the forms of ``holdfast.service``, without what only operators need
pace.py            Pace: how many requests of one client on stdio are under way at once
prompts.py         Prompts: briefings for an agent that takes a task over, or hands one over
protocol_tasks.py  The protocol's own tasks (the extension io.modelcontextprotocol/tasks): a submission that is followed
                   by polling
server.py          The MCP server, whichever way it is reached: over stdio by one client, or over HTTP by many
subscriptions.py   Subscriptions, as both eras of clients ask for them
watches.py         Watching resources: each watcher is notified soon after any process has changed its resource
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
    """Import the client part on first use: only agents with tools of MCP servers need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.client"), name)
