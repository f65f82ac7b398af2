"""The place of a SQLite store: its file, the -wal and the -shm beside it, and the content of the file.

``cp backup.db agents.db`` leaves the file the same and changes what stands in it, under the feet of every process that
has it open. SQLite does not notice. ``.restore`` changes all of it in one transaction, which looks like any other. So
the store counts its states: the *epoch*, kept in ``user_version``, rises with the first write of each process in each
second, and right before the WAL is copied into the file. A backup has a lower one than any write a second later.

A transaction compares the epoch it sees with the last one if any connection but its own has written since. The header
of the file is read only when the file was written since the last look. It also holds the schema's number, which SQLite
changes in every copy that it makes itself.

A restore within the same epoch leaves the epoch as it is, but changes the schema's number, as a migration or VACUUM
also does. Then the last task that this process wrote is looked up: a restore takes its last change back.
"""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import apsw

from holdfast.store.place import Identity, compare, identify, replaced
from holdfast.store.sqlite.connection import APPLICATION_ID
from holdfast.store.sqlite.inherited import keep

EPOCH_LASTS = 1.0
"""Seconds for which a process writes in the epoch that it began: a backup differs from all that is written later."""

_HEADER = 100
_MAGIC = b"SQLite format 3\0"
_WRAPS = 1 << 32
_SIGNED = 1 << 31
_MOST_AHEAD = 1 << 26
"""How far the epoch may rise between two looks: two years of one process. A step back is a larger one, as it wraps."""


class _Header(NamedTuple):
    epoch: int
    """0 if there is none yet."""
    schema: int


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
        self._in_file = _read(self._header) or _Header(0, 0)
        self._first_epoch = self._epoch = current_epoch(connections[0])
        self._schema = _schema_number(connections[0])
        self._last_task: tuple[str, int] | None = None
        """The last task that this process wrote, with its revision."""
        self._last_task_epoch = 0
        """The epoch in which this process wrote it."""
        self._next_epoch: int | None = None
        self._began_one_at: float | None = None
        self._seen_writes = -1
        """SQLite's number of the writes that its own connection has seen, when the content was last looked at."""

    def check(self) -> None:
        """See Place."""
        self._compare()

    def check_content(self) -> None:
        """Do the same inside a transaction, and see that nothing but the store's own writes changed its content."""
        written = _written(self._compare())
        # Follows the writes of all connections once a transaction is open. No statement is run: 0.1 us instead of 11.
        writes = self._connection.data_version()
        if (writes, written) == (self._seen_writes, self._written):
            return
        self._follow_epoch()
        self._follow_schema()
        self._seen_writes = writes
        if written == self._written:
            return
        header = _read(self._header)
        if header is None or not self._may_follow(header):
            raise replaced(self._path, "another file was copied over it", f"without {self._wal} and {self._shm}")
        self._written, self._in_file = written, header

    def before_commit(self, now: float) -> None:
        """Begin the next epoch, in the open transaction that has written something, if the last one has lasted.

        Only what this process began counts: a backup may have been made since another process began the present one.
        """
        due = self._began_one_at is None or now - self._began_one_at >= EPOCH_LASTS
        self._next_epoch = _write_next_epoch(self._connection) if due else None

    def after_commit(self, now: float, last_task: tuple[str, int] | None) -> None:
        """Count the epoch that this transaction began. It counts only now: a COMMIT can fail.

        ``last_task`` is a task that the transaction wrote, with its revision.
        """
        if self._next_epoch is not None:
            self._epoch, self._began_one_at, self._next_epoch = self._next_epoch, now, None
        if last_task is not None:
            self._last_task, self._last_task_epoch = last_task, self._epoch
        # Outside a transaction SQLite does not look for the writes of others: this counts our own COMMIT and no more.
        self._seen_writes = self._connection.data_version()

    def _follow_epoch(self) -> None:
        epoch = current_epoch(self._connection)
        if (epoch - self._epoch) % _WRAPS > _MOST_AHEAD:
            raise replaced(self._path, "an older state was restored into it")
        self._epoch = epoch

    def _follow_schema(self) -> None:
        schema = _schema_number(self._connection)
        if schema == self._schema:
            return
        if self._last_task is not None:
            task_id, known = self._last_task
            revision = self._connection.execute("SELECT revision FROM tasks WHERE id = ?", (task_id,)).get
            # A task that is missing may have been pruned, but hardly in the second in which this process wrote it.
            is_lost = self._last_task_epoch == self._epoch if revision is None else revision < known
            if is_lost:
                raise replaced(self._path, "an older state was restored into it")
        self._schema = schema

    def _may_follow(self, header: _Header) -> bool:
        if not self._in_file.schema <= header.schema <= self._schema:
            return False
        epoch, last = header.epoch, self._in_file.epoch
        if epoch == 0 or last == 0:  # a new file has its first epoch only in the WAL
            return epoch in {last, self._first_epoch} or self._is_since(self._first_epoch, epoch)
        return self._is_since(last, epoch)

    def _is_since(self, oldest: int, epoch: int) -> bool:
        return epoch > 0 and (epoch - oldest) % _WRAPS <= (self._epoch - oldest) % _WRAPS

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

    def release_in_child(self) -> None:
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
        _write_next_epoch(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _write_next_epoch(connection: apsw.Connection) -> int:
    following = (current_epoch(connection) + 1) % _WRAPS or 1  # 0 is a file without epochs
    connection.pragma("user_version", following - _WRAPS if following >= _SIGNED else following)
    return following


def current_epoch(connection: apsw.Connection) -> int:
    """Return the epoch as the last transaction left it, which may be only in the WAL yet."""
    return int(connection.execute("PRAGMA user_version").get) % _WRAPS


def _schema_number(connection: apsw.Connection) -> int:
    """Return the number that SQLite raises when the schema changes, or when it copies a database into this one."""
    return int(connection.execute("PRAGMA schema_version").get)


def _read(file: apsw.VFSFile) -> _Header | None:
    """Return what the header of the file itself says; None if it is not a store's."""
    header = file.xRead(_HEADER, 0)
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        return None
    schema, epoch, application = (int.from_bytes(header[start : start + 4], "big") for start in (40, 60, 68))
    if application not in {0, APPLICATION_ID}:
        return None
    return _Header(epoch if application else 0, schema)


def _written(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size


def _has_moved(connection: apsw.Connection) -> bool:
    answer = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return bool(answer.value)
