"""What a forked child inherits of SQLite, and must never touch.

The system's file locks belong to a process, so SQLite keeps one list of open files for the whole process, with the
locks it holds on each. A fork copies the list and not the locks. A new connection in the child finds the file in the
list and takes no lock. The parent then sees no lock and may delete the WAL with all that the child committed. So a file
that was open at the fork is refused.

The child never closes an inherited connection, not even by garbage collection. Closing rolls back what was under way,
in memory that both processes share: the parent would find its database damaged in the middle of a transaction.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from holdfast import process_fork
from holdfast.model.errors import StoreForked

_MOST_DESCRIPTORS = 65_536
"""How many numbers are tried where the system does not list the open ones."""


class _OpenFiles:
    """The files that were open when this process was forked, by device and inode: a file may have many names."""

    def __init__(self) -> None:
        self._inherited: set[tuple[int, int]] = set()
        process_fork.watch(self)

    def release_in_child(self) -> None:
        """Note in the child what it inherits, whether this library opened it or the user's own code."""
        for number in _descriptors():
            with suppress(OSError):
                status = os.fstat(number)
                if stat.S_ISREG(status.st_mode):
                    self._inherited.add((status.st_dev, status.st_ino))

    def __contains__(self, path: str) -> bool:
        with suppress(OSError):
            status = Path(path).stat()
            return (status.st_dev, status.st_ino) in self._inherited
        return False


_files = _OpenFiles()


def refuse_inherited(path: str) -> None:
    """Raise StoreForked for a file to which the parent had a connection when it forked this process."""
    if path in _files:
        raise StoreForked(
            f"{path} was open in the process that this one ({os.getpid()}) was forked from. SQLite's knowledge of its "
            "locks was copied with it and is wrong here: what is committed could be lost, so the file was not opened. "
            "Close it before the fork, or open it there only after the fork; or start this process with spawn instead "
            "of fork"
        )


def keep(connection: apsw.Connection | apsw.VFSFile) -> Any:  # noqa: ANN401 - it stands in for a connection
    """Have an inherited connection never be closed, not even by the end of the interpreter; return what replaces it."""
    # These references are never given back. The module as well: on its way out it closes every connection there is.
    for kept in (connection, apsw):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return _NoConnection()


class _NoConnection:
    """Stands where a connection was, for code that was under way at the fork and goes on in the child."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        raise StoreForked(
            f"a forked process cannot use its parent's connection to SQLite ({name}); open one after the fork"
        )


def _descriptors() -> Iterable[int]:
    folder = "/dev/fd" if sys.platform == "darwin" else "/proc/self/fd"
    try:
        return [int(name) for name in os.listdir(folder)]  # noqa: PTH208 - in a hook of fork: no more than is needed
    except OSError:
        return range(_MOST_DESCRIPTORS)
