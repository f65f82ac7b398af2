"""The tools of any MCP server, for an Agent: journaled, approved and retried like the agent's own.

``connection``, ``transports``, ``pipe``, ``dispatch``, ``health``, ``error_meaning`` and ``answers`` know the SDK. They
are loaded when a server is first reached.

Modules:

answers.py        What a tool answered, as plain data: for the journal, and for a model
catalogue.py      What a server lists
connection.py     Connection: one session with a server, opened, kept and closed by one task of its own
declarations.py   What an operator declares about a server's tool, and what the server's own hints change about it
dispatch.py       Sending: what is known about one request on its way, as far as its transport can tell
error_meaning.py  What an error proves about a call: that it was not made, or nothing at all
errors.py         What a call that failed raises
health.py         Health: what is known about a connection without asking the server
pipe.py           The transport to a server that is started: one JSON message a line, over its stdin and stdout
reach.py          Reach: one server of an event loop: a connection opened on first use, shared, and opened again when it
                  breaks
schema.py         What a server's tool takes: its JSON Schema, as the model is shown it and as arguments are checked
                  against it
servers.py        Where a server is: a command that is started and spoken to over its pipes, or a URL
source.py         tools: the tools of an MCP server, for an Agent's ``tools=``
tool.py           ServerTool: a tool of an MCP server, as a Tool of an agent
transports.py     The two transports to a server
validator.py      Checking against an untrusted JSON Schema within a limit of work: a schema of one page can ask for
                  years of it
"""

from holdfast.mcp.client.declarations import Declared
from holdfast.mcp.client.errors import AnswerUnclear, CallFailed, CallRefused, CannotStart, ServerAway
from holdfast.mcp.client.source import ServerTools, tools

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
