"""What a call that failed raises. NotHappened proves that no call was made; the rest leaves a ``once`` in doubt.

NotHappened
├── ServerAway                    the server could not be reached, or refused the connection: no call was made
│   └── CannotStart               its command does not exist, or may not be executed
└── ToolError
    └── CallRefused               it answered that it does not make this call
HoldfastError
├── AnswerUnclear                 the call was sent, and its outcome is unknown
└── CallFailed                    the tool ran and reported a failure; how much of its work it did is unknown
"""

from __future__ import annotations

from holdfast.agent.tool import ToolError
from holdfast.model.errors import HoldfastError, NotHappened


class ServerAway(NotHappened):
    """The server could not be reached, or refused the connection: no call was made."""


class CannotStart(ServerAway):
    """The command of a server does not exist, or may not be executed: a person has to fix that."""


class CallRefused(ToolError):
    """The server answered that it does not make this call: it does not know the tool, or not with these arguments."""


class AnswerUnclear(HoldfastError):
    """The call was sent, and its outcome is unknown."""


class CallFailed(HoldfastError):
    """The tool ran and reported a failure; how much of its work it did is unknown."""


# Named as users import them; see holdfast.model.errors.
for _error in [value for value in globals().values() if isinstance(value, type) and value.__module__ == __name__]:
    _error.__module__ = "holdfast.mcp"
