"""Errors of the ready-made tools. Those under NotHappened are proof; the rest leave the effect in doubt.

NotHappened
├── Impossible (InvalidValue)     these arguments can never work; the code has to change
├── NotReached                    the server, database or folder could not be reached: nothing was sent or written
├── FileTaken (FileExistsError)   the path holds something else, and nothing is ever overwritten
├── RequestRefused                the server answered that it did not do this
├── RowRefused                    the database rejected this row
└── CommandRefused                the command was not started, or reported that it did nothing
HoldfastError
├── UnclearResponse               the server answered, but the answer proves nothing
├── CommandFailed                 the command failed; how much of its work is done is unknown
├── CommandTimedOut (TimeoutError)   the command was killed after its timeout
└── StillRunning                  an earlier start of the same command has not ended
"""

from __future__ import annotations

import errno

from holdfast.model.errors import HoldfastError, InvalidValue, NotHappened


class Impossible(NotHappened, InvalidValue):
    """The call can never succeed. Nothing was tried."""


class NotReached(NotHappened):
    """The server, database or folder could not be reached: nothing was sent or written."""


class FileTaken(NotHappened, FileExistsError):
    """The path holds something else already. Nothing is ever overwritten."""

    def __init__(self, path: str) -> None:
        """``path`` is the file that could not be created."""
        super().__init__(errno.EEXIST, "this path holds something else, which was not changed; choose another", path)


class RequestRefused(NotHappened):
    """The server answered with a status that means: not done."""

    def __init__(self, message: str, *, status: int, body: str, retry_after: float | None = None) -> None:
        """``body`` is the beginning of the answer; ``retry_after`` is the pause the server asked for, in seconds."""
        super().__init__(message)
        self.status, self.body, self.retry_after = status, body, retry_after


class RowRefused(NotHappened):
    """The database rejected this row."""


class CommandRefused(NotHappened):
    """The command could not be started, or ended with a code that means: nothing done."""


class UnclearResponse(HoldfastError):
    """The server answered, but its status does not show whether it was done."""

    def __init__(self, message: str, *, status: int, body: str) -> None:
        """``body`` is the beginning of the answer."""
        super().__init__(message)
        self.status, self.body = status, body


class CommandFailed(HoldfastError):
    """The command failed; how much it did before that is unknown."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        """``exit_code`` is negative if a signal ended it."""
        super().__init__(message)
        self.exit_code = exit_code


class CommandTimedOut(HoldfastError, TimeoutError):
    """The command was killed after its timeout, with all processes it had started."""


class StillRunning(HoldfastError):
    """An earlier start of the same command, under the same effect id, has not ended."""


# The name that users import; see holdfast.model.errors.
for _error in [value for value in globals().values() if isinstance(value, type) and value.__module__ == __name__]:
    _error.__module__ = "holdfast.effects"
