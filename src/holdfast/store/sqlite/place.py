"""The place of a SQLite store: its file, the -wal and the -shm beside it, and the content of the file.

``cp backup.db agents.db`` leaves the file the same and changes what stands in it, under the feet of every process that
has it open. SQLite does not notice. So the header counts the states that the file itself has been in (the *epoch*, kept
in ``user_version``). Every process raises it right before it copies the WAL into the file, so a backup has a lower one
than the file has after that. The header is read only when the file was written since the last look.

A copy that has the epoch of the file is harmless if its pages are in the same order (not those of VACUUM INTO), and
the WAL was not copied in part: what was changed since is still in the WAL, which SQLite reads
first.
"""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Sequence

import apsw

from holdfast.store.place import Identity, compare, identify, replaced
from holdfast.store.sqlite.connection import APPLICATION_ID
from holdfast.store.sqlite.inherited import keep

_HEADER = 100
_MAGIC = b"SQLite format 3\0"
_WRAPS = 1 << 32
_SIGNED = 1 << 31


class FilePlace:
    """The files that the connections of a store opened."""

    def __init__(self, path: str, connections: Sequence[apsw.Connection], before: Sequence[Identity | None]) -> None:
        """``before`` is what ``look_before`` saw: a connection opened no other file if it still stands there after."""
        wal = connections[0].filename_wal
        self._path, self._wal, self._shm = path, wal, f"{wal.removesuffix('-wal')}-shm"
        found = [identify(name) for name in (path, self._wal, self._shm)]
        self.is_certain = not any(map(_has_moved, connections)) and all(
            was is None or was == now for was, now in zip(before, found, strict=True)
        )
        """Whether no file was replaced while the store was opened. If one was, it has to be opened again."""
        self._file = found[0] or (0, 0)
        # Without a WAL, on a file system that cannot have one, there is nothing beside the file.
        beside = zip((self._wal, self._shm), found[1:], strict=True)
        self._beside = tuple((name, identity) for name, identity in beside if identity is not None)
        self._connection = connections[0]
        # Through SQLite: a descriptor of our own would, when closed, drop every lock that this process has on the file.
        self._header = apsw.VFSFile(
            "", connections[0].filename, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
        )
        self._written = _written(os.stat(path)) if found[0] else (0, 0)  # noqa: PTH116
        self._epoch = read_epoch(self._header) or 0
        self._first_epoch = current_epoch(connections[0])

    def check(self) -> None:
        """See Place."""
        self._compare()

    def check_content(self) -> None:
        """Do the same inside a transaction, and see that the file was written by SQLite only."""
        written = _written(self._compare())
        if written == self._written:
            return
        epoch = read_epoch(self._header)
        if epoch is None or not self._may_follow(epoch):
            raise replaced(self._path, "another file was copied over it")
        self._written, self._epoch = written, epoch

    def _may_follow(self, epoch: int) -> bool:
        if epoch == 0 or self._epoch == 0:  # a new file has its first epoch only in the WAL
            return epoch in {self._epoch, self._first_epoch} or self._is_since(self._first_epoch, epoch)
        return self._is_since(self._epoch, epoch)

    def _is_since(self, oldest: int, epoch: int) -> bool:
        return epoch > 0 and (epoch - oldest) % _WRAPS <= (current_epoch(self._connection) - oldest) % _WRAPS

    def _compare(self) -> os.stat_result:
        status = compare(self._path, self._path, self._file)
        for path, identity in self._beside:
            compare(self._path, path, identity)
        return status

    @property
    def lacks_only_its_wal(self) -> bool:
        """Whether the WAL was deleted, and no process has changed the store since: then it can still be saved."""
        try:
            return (
                identify(self._path) == self._file
                and identify(self._wal) is None
                and _written(os.stat(self._path)) == self._written  # noqa: PTH116
            )
        except OSError:
            return False

    def close(self) -> None:
        """Let go of the file."""
        self._header.xClose()

    def let_go(self) -> None:
        """Never touch the file again: this is a forked child, and it is the parent's."""
        self._header = keep(self._header)


def look_before(path: str) -> list[Identity | None]:
    """Return what stands at the paths of the file, the -wal and the -shm before the file is opened."""
    real = os.path.realpath(path)  # SQLite puts the other two beside the file that a link leads to
    return [identify(path), identify(f"{real}-wal"), identify(f"{real}-shm")]


def begin_epochs(connection: apsw.Connection) -> None:
    """Give a file its first epoch, inside a transaction: a random one, by which two stores differ."""
    if not connection.pragma("user_version"):
        connection.pragma("user_version", secrets.randbelow(_SIGNED - 1) + 1)


def raise_epoch(connection: apsw.Connection) -> None:
    """Begin the next epoch, in a transaction of its own."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        following = (current_epoch(connection) + 1) % _WRAPS or 1  # 0 is a file without epochs
        connection.pragma("user_version", following - _WRAPS if following >= _SIGNED else following)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def current_epoch(connection: apsw.Connection) -> int:
    """Return the epoch as the last transaction left it, which may be only in the WAL yet."""
    return int(connection.pragma("user_version")) % _WRAPS


def read_epoch(file: apsw.VFSFile) -> int | None:
    """Return the epoch that stands in the file itself, 0 if there is none yet; None if it is no store."""
    header = file.xRead(_HEADER, 0)
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        return None
    epoch, application = (int.from_bytes(header[start : start + 4], "big") for start in (60, 68))
    return epoch if application == APPLICATION_ID else 0 if application == 0 else None


def _written(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size


def _has_moved(connection: apsw.Connection) -> bool:
    answer = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return bool(answer.value)
