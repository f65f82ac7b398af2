"""The gate between processes: a file lock taken before BEGIN IMMEDIATE.

SQLite's busy timeout polls and starves: of eight writers one got a single commit in six seconds. The kernel's lock
queue is fair, costs within 5 % of throughput, and is gone by itself when its holder dies. It is an ordering aid and
no guard: correctness is SQLite's own locking, so where there is no flock the gate is simply open.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Protocol

from holdfast.model.errors import ReadOnlyStore
from holdfast.process_fork import LockFile
from holdfast.store.handles import TooManyOpenFiles, is_too_many_open_files
from holdfast.store.place import identify, identify_open
from holdfast.store.privacy import open_lock

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


LOOK_EVERY = 1.0
"""Seconds between two looks at whether the gate is still the one that other processes find."""


class Gate(Protocol):
    """What the writer waits at."""

    def try_enter(self) -> bool:
        """Enter if no process is inside; return whether that worked."""

    def enter(self) -> None:
        """Enter, waiting as long as it takes."""

    def leave(self) -> None:
        """Let the next one in."""

    def close(self) -> None:
        """Give the gate up."""


class OpenGate:
    """No gate: for databases no other process can reach, and systems without flock."""

    def try_enter(self) -> bool:
        """See Gate."""
        return True

    def enter(self) -> None:
        """See Gate."""

    def leave(self) -> None:
        """See Gate."""

    def close(self) -> None:
        """See Gate."""


class FileGate:
    """An flock on a file beside the database."""

    def __init__(self, path: str, lock: LockFile) -> None:
        """Wait at this gate file of the database at ``path``; it stays, empty, for ever."""
        self._database, self._path, self._file = path, _beside(path), lock
        self._identity = identify_open(self._file.descriptor)
        self._looked = time.monotonic()

    def try_enter(self) -> bool:
        """See Gate."""
        self._renew()
        try:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def enter(self) -> None:
        """See Gate."""
        self._renew()
        fcntl.flock(self._file.descriptor, fcntl.LOCK_EX)

    def _renew(self) -> None:
        """Take the gate that stands at the path, if the one that was opened is gone: others queue there."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        with suppress(OSError):  # what became of the store itself is found out behind the gate
            if identify(self._path) == self._identity:
                return
            if (lock := open_lock(self._path, beside=self._database)) is None:
                return
            gone, self._file = self._file, lock
            self._identity = identify_open(self._file.descriptor)
            gone.close()

    def leave(self) -> None:
        """See Gate."""
        fcntl.flock(self._file.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """See Gate."""
        self._file.close()


def file_gate(path: str) -> Gate:
    """Return the gate for the database at this path."""
    return OpenGate() if fcntl is None else _file_gate(path)


def _file_gate(path: str) -> Gate:
    """Return an open gate where the file is another user's, who could keep it shut."""
    try:
        lock = open_lock(_beside(path), beside=path)
    except OSError as error:
        if is_too_many_open_files(error):
            raise TooManyOpenFiles(_beside(path)) from error
        raise ReadOnlyStore(
            f"{_beside(path)} cannot be written ({error.strerror}); a store needs a folder that can be, also to be "
            "looked at: mend its rights, make room, or look at a copy elsewhere"
        ) from error
    return OpenGate() if lock is None else FileGate(path, lock)


def _beside(path: str) -> str:
    return f"{path}-gate"
