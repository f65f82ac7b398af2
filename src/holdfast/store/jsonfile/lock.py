"""The lock that keeps a second process out of a directory."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.model.errors import StoreBusy
from holdfast.store.jsonfile.files import FORMAT
from holdfast.store.place import Files, Identity, StorePlace, identify, identify_open
from holdfast.store.privacy import open_lock

if os.name == "nt":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class DirectoryLock:
    """Held by one store object at a time; the system lets go of it when the process dies."""

    def __init__(self, root: Path) -> None:
        """Take the lock, or raise StoreBusy and say who has it."""
        self._root, self._path = str(root), str(root / "lock")
        folder = identify(self._root)
        lock = open_lock(self._path, beside=str(root / FORMAT))
        if lock is None:
            raise StoreBusy(f"{self._path} belongs to another user; remove it if no process of that user uses {root}")
        self._file = lock
        descriptor = self._file.descriptor
        try:
            _lock(descriptor)
        except OSError as error:
            holder = os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
            self.release()
            raise StoreBusy(
                f"{root} is open in process {holder}; a JSON store takes one process at a time. Close that one, "
                "or use sqlite:///agents.db, which any number of processes can share"
            ) from error
        try:
            os.truncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            self.place = self._find_place(folder)
        except BaseException:  # a full disk: a process that failed to open the store must not lock it
            self.release()
            raise

    def _find_place(self, folder: Identity | None) -> StorePlace:
        """Return the place of the folder and the lock, once it is certain that the lock lies in this folder."""
        lock = identify_open(self._file.descriptor)
        if folder is None or identify(self._root) != folder or identify(self._path) != lock:
            raise StoreBusy(f"{self._root} was replaced as it was opened; try again")
        return Files(self._root, [(self._root, folder), (self._path, lock)])

    def release(self) -> None:
        """Let the next one in."""
        self._file.close()
