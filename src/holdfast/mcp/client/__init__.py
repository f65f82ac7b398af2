"""The tools of any MCP server, for an Agent: journaled, approved and retried like the agent's own.

source.py        tools(...), what an application writes; they are found when an attempt begins
declaring.py     what the operator declares, and how a server's own hints may tighten it, never loosen
tool.py          one tool of a server, as a Tool of an agent
schema.py        what it takes; validating.py: checking that, with an end
servers.py       where a server is: a command, or a URL; listing.py: what it lists
reaching.py      one connection per loop and server, opened on first use and again when it breaks
errors.py        what a call that came to nothing may mean

Only these know the SDK. They are loaded when a server is first reached:

connection.py    one session, owned by one task
transports.py    its two ways, watched; pipe.py: the one to a server that is started
sending.py       how far a request got; health.py: whether any answer can come
meaning.py       what an error proves about a call; answers.py: what a result is as plain data
"""

from holdfast.mcp.client.declaring import Declared
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
