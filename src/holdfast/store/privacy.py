"""Privacy: a new store is its owner's alone, whatever the umask; what stands beside a store follows its permissions.

The owner of a store may share it, for example with a group (``chmod g+rw``). Nothing here takes that back.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from holdfast.process_fork import ForkSafeLock, LockFile

FILE, FOLDER = 0o600, 0o700

_creating = ForkSafeLock()
"""Closing a descriptor drops every lock that this process has on the file: no other thread may open it meanwhile."""


def create_file(path: str) -> None:
    """Make an empty file for its owner alone, unless there is one. The caller reports what prevents that."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    with _creating, suppress(OSError):
        descriptor = os.open(os.path.realpath(path), flags, FILE)
        try:
            set_mode(descriptor, FILE)  # a umask takes rights away, and may take too many
        finally:
            os.close(descriptor)


def create_folder(path: Path) -> None:
    """Make a folder for its owner alone, unless there is one; those above it are made as usual."""
    try:
        path.mkdir(FOLDER, parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        path.chmod(FOLDER)


def permissions(path: str | Path) -> int | None:
    """Return who may do what with a file; None if there is none, or if it cannot be read."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 - a text as often as a Path
    except OSError:
        return None


def of_folder(file_mode: int) -> int:
    """Return the permissions of a folder whose files have these: who may read them may look into it."""
    return file_mode | (file_mode & 0o444) >> 2


def of_lock(file_mode: int) -> int:
    """Return the permissions of a lock beside a file that has these: for those who may write the file, and no others.

    Every user who can open a lock file, if only to read it, can hold the lock for ever.
    """
    return 0o600 | (0o060 if file_mode & 0o020 else 0) | (0o006 if file_mode & 0o002 else 0)


def set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions of an open file, where the system knows them."""
    if hasattr(os, "fchmod"):  # Windows
        with suppress(OSError):
            os.fchmod(descriptor, mode)


def open_lock(path: str, *, beside: str) -> LockFile | None:
    """Open the lock that stands beside a file, with the permissions it should have.

    None: another user put it there, who may not write the file. To wait for that user's lock would be to let any user
    stop every other one.
    """
    mode = of_lock(permissions(beside) or FILE)
    lock = LockFile(path, mode)
    if not hasattr(os, "geteuid"):  # Windows
        return lock
    found, store, user = os.fstat(lock.descriptor), _status(beside), os.geteuid()
    if user == 0 and store is not None and found.st_uid == 0:  # as SQLite does with its files: they are the store's
        with suppress(OSError):
            os.fchown(lock.descriptor, store.st_uid, store.st_gid)
    elif found.st_uid == user and store is not None and found.st_gid != store.st_gid:
        with suppress(OSError):  # not a member of the group
            os.fchown(lock.descriptor, -1, store.st_gid)
    if stat.S_IMODE(found.st_mode) != mode and user in {0, found.st_uid}:
        set_mode(lock.descriptor, mode)
    is_shared = store is not None and bool(store.st_mode & 0o022)
    if is_shared or store is None or found.st_uid in {0, user, store.st_uid}:
        return lock
    lock.close()
    return None


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return None
