"""What the ready-made tools raise. Everything under NotHappened is proof; the rest leaves the effect in doubt.

NotHappened
├── Impossible (InvalidValue)     these arguments will never do; the code has to change
├── NotReached                    the server, database or folder could not be reached: nothing was sent or written
├── FileTaken (FileExistsError)   the path holds something else, and nothing is ever overwritten
├── RequestRefused                the server answered that it does not do this
├── RowRefused                    the database answered that it does not take this row
└── CommandRefused                the command was not started, or said that it did nothing
HoldfastError
├── UnclearResponse               the server answered, but that proves nothing either way
├── CommandFailed                 the command ended badly, nobody knows after how much of its work
├── CommandTimedOut (TimeoutError)   the command was killed because its time was up
└── StillRunning                  an earlier start of the same command has not ended
"""

from __future__ import annotations

import errno

from holdfast.model.errors import HoldfastError, InvalidValue, NotHappened


class Impossible(NotHappened, InvalidValue):
    """What was asked for cannot be done, now or later. Nothing was tried."""


class NotReached(NotHappened):
    """The server, database or folder could not be reached: nothing was sent or written."""


class FileTaken(NotHappened, FileExistsError):
    """The path holds something else already. Nothing is ever overwritten."""

    def __init__(self, path: str) -> None:
        """``path`` is what was to be created."""
        super().__init__(errno.EEXIST, "this path holds something else, which is left as it is; choose another", path)


class RequestRefused(NotHappened):
    """The server answered with a status that means: not done."""

    def __init__(self, message: str, *, status: int, body: str, retry_after: float | None = None) -> None:
        """``body`` is the beginning of what it answered; ``retry_after`` are the seconds it asked to wait."""
        super().__init__(message)
        self.status, self.body, self.retry_after = status, body, retry_after


class RowRefused(NotHappened):
    """The database answered that it does not take this row."""


class CommandRefused(NotHappened):
    """The command could not be started, or ended with a code that says: nothing done."""


class UnclearResponse(HoldfastError):
    """The server answered, but its status does not say whether it was done."""

    def __init__(self, message: str, *, status: int, body: str) -> None:
        """``body`` is the beginning of what it answered."""
        super().__init__(message)
        self.status, self.body = status, body


class CommandFailed(HoldfastError):
    """The command ended badly; how much it did before that only it could tell."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        """``exit_code`` is negative where a signal ended it."""
        super().__init__(message)
        self.exit_code = exit_code


class CommandTimedOut(HoldfastError, TimeoutError):
    """The command was killed, with everything it had started, because its time was up."""


class StillRunning(HoldfastError):
    """An earlier start of the same command, under the same effect id, has not ended."""


# Named as users import them; see holdfast.model.errors.
for _error in [value for value in globals().values() if isinstance(value, type) and value.__module__ == __name__]:
    _error.__module__ = "holdfast.effects"
