"""File handles: a process, or a machine, that has none left has a passing trouble, and its store has none at all."""

from __future__ import annotations

import errno
import os

from holdfast.model.errors import StoreUnavailable


class TooManyOpenFiles(StoreUnavailable):
    """A file cannot be opened now, because of how many are open. It is waited for, as for a store that is busy."""

    def __init__(self, path: str) -> None:
        """``path`` is the file."""
        super().__init__(
            f"{path} cannot be opened now: this process or this machine has no file handle left. The store itself is "
            "unharmed. Close some files, or raise the limit (`ulimit -n`)"
        )


def is_too_many_open_files(error: OSError) -> bool:
    """Say whether an error means that no file at all can be opened now."""
    return error.errno in {errno.EMFILE, errno.ENFILE}


def are_exhausted() -> bool:
    """Try to open a file that can always be opened. SQLite says only that it could not open one, and not why."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return is_too_many_open_files(error)
    return False
