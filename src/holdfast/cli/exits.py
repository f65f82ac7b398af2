"""Exit codes, for scripts: what became of the command, without reading its output."""

from __future__ import annotations

from enum import IntEnum

from holdfast.model.errors import (
    Conflict,
    CursorLost,
    DeadlineExceeded,
    HoldfastError,
    InvalidValue,
    NotFound,
    QueueFull,
    TaskCancelled,
    TaskFailed,
)

SIGNALLED = 128
"""What shells add to the number of the signal that ended a process."""


class ExitCode(IntEnum):
    """How a command ended. A worker that is forced to stop leaves with 128 and the number of the signal."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    """What was typed cannot be done: a wrong option, argument, module or URL."""
    NOT_FOUND = 3
    CONFLICT = 4
    """The store holds something else than the caller assumed: other input under the key, another state, a full
    queue, a feed without the cursor."""
    TASK_FAILED = 5
    """The command did its work; the task it waited for failed or was cancelled."""
    UNREACHED = 6
    """The model of the task cannot be reached, and the command does not wait any longer; the task is still open."""
    TIMEOUT = 124
    INTERRUPTED = 130


_CODES: tuple[tuple[type[HoldfastError], ExitCode], ...] = (
    (InvalidValue, ExitCode.USAGE),
    (NotFound, ExitCode.NOT_FOUND),
    (Conflict, ExitCode.CONFLICT),
    (QueueFull, ExitCode.CONFLICT),
    (CursorLost, ExitCode.CONFLICT),
    (TaskFailed, ExitCode.TASK_FAILED),
    (TaskCancelled, ExitCode.TASK_FAILED),
    (DeadlineExceeded, ExitCode.TIMEOUT),
)


def exit_code(error: HoldfastError) -> ExitCode:
    """Return the code for an error that ends a command."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILURE)
