"""The lock that keeps a second process out of a directory."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.model.errors import StoreBusy
from holdfast.process_fork import LockFile

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
        self._file = LockFile(root / "lock")
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
        except BaseException:  # a full disk: whoever failed to open the store must not lock it
            self.release()
            raise

    def release(self) -> None:
        """Let the next one in."""
        self._file.close()
