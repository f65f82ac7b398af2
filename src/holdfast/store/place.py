"""The place of a store: the files it opened, compared with those that stand at their paths now.

A process keeps a file open that was moved, deleted or replaced. It would go on writing where no other process reads,
while another process works on what stands at the path. So every transaction compares first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

from holdfast.model.errors import StoreReplaced, StoreUnavailable

Identity = tuple[int, int]
"""Device and inode: what a file is, whatever its names are."""

_GONE = (FileNotFoundError, NotADirectoryError)


class StorePlace(Protocol):
    """What a store asks before it reads, writes or lets anything be sent."""

    def check(self) -> None:
        """Raise StoreReplaced unless the files at the paths are those that the store has open."""


class Nowhere:
    """The place of a store in memory, which has no files."""

    def check(self) -> None:
        """See StorePlace."""


class Files:
    """Files that have to stay where they were opened."""

    def __init__(self, store: str, files: Iterable[tuple[str, Identity]]) -> None:
        """``store`` is a name for messages."""
        self._store = store
        self._files = tuple(files)

    def check(self) -> None:
        """See StorePlace."""
        for path, identity in self._files:
            compare(self._store, path, identity)


def compare(store: str, path: str, identity: Identity) -> os.stat_result:
    """Return what is known of the file at the path, if it is this one; raise StoreReplaced if not."""
    try:
        status = os.stat(path)  # noqa: PTH116 - at every transaction: a Path costs as much again
    except _GONE as error:
        raise replaced(store, f"{path} was moved or deleted") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be looked at ({error}); check the disk") from error
    if (status.st_dev, status.st_ino) != identity:
        raise replaced(store, f"{path} is another file now")
    return status


def identify(path: str) -> Identity | None:
    """Return what stands at the path; None if nothing does."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as above
    except _GONE:
        return None
    return status.st_dev, status.st_ino


def identify_open(descriptor: int) -> Identity:
    """Return which file is open under this number."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def replaced(store: str, what: str, how: str = "") -> StoreReplaced:
    """Return the error of a process that finds another store at the path than the one it opened.

    ``how`` is to be started again, if the store at the path is the right one.
    """
    return StoreReplaced(
        f"{store} is no longer the store that this process opened: {what}. This process writes and sends nothing more. "
        f"Restart it{how and ' '}{how} if the store at the path is the right one. If not, stop every process that uses "
        "the store, put the right files in place as docs/operations.md says under Restore, and start them again"
    )
