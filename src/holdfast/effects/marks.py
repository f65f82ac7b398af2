"""The marks that a command leaves on disk, and the lock that shows whether it runs; see commands.py."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.effects.durable import file_name, sync_directory, write_new
from holdfast.model.canonical import canonical, parse
from holdfast.model.errors import CodecError
from holdfast.process_fork import LockFile
from holdfast.redaction import redacted

if sys.platform != "win32":
    import fcntl

OUTPUT_KEPT = 64_000
"""Bytes of each of the two outputs; of a longer one, both ends are kept."""


@dataclass(frozen=True, slots=True)
class End:
    """The record of a command's end."""

    exit_code: int | None
    """None: it could not be started."""
    output: str = ""
    errors: str = ""


class Marks:
    """The marks of one effect. As a context manager it releases the lock; the command still holds it."""

    def __init__(self, folder: Path, effect_id: str) -> None:
        """Set the names of the marks; the marks need not exist."""
        name = file_name(effect_id)
        self._folder = folder
        self._started = folder / f"{name}.started"
        self._done = folder / f"{name}.done"
        self.output = folder / f"{name}.output"
        self.errors = folder / f"{name}.errors"
        self._lock: LockFile | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # Before the start

    def claim(self) -> bool:
        """Write the mark of a start to disk, and lock it. False: another worker or a running command holds the lock."""
        if not self._folder.is_dir():
            self._folder.mkdir(0o700, parents=True, exist_ok=True)  # private: it holds the output of commands
            sync_directory(self._folder.parent)
        self._lock = LockFile(self._started)
        is_ours = _try_lock(self._lock.descriptor, exclusive=True)
        if is_ours:
            self.name_owner(os.getpid())
            os.fsync(self._lock.descriptor)
        sync_directory(self._folder)
        return is_ours

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors that the command inherits, so that the lock is held until it ends."""
        return () if self._lock is None else (self._lock.descriptor,)

    def forget_end(self) -> None:
        """Remove the end of an earlier start: it would count as the end of the next one."""
        if self._done.exists():
            self._done.unlink()
            sync_directory(self._folder)

    # Afterwards

    def name_owner(self, process: int) -> None:
        """Record for people which process it is. No code depends on it."""
        if self._lock is not None:
            with suppress(OSError):
                os.ftruncate(self._lock.descriptor, 0)
                os.lseek(self._lock.descriptor, 0, os.SEEK_SET)
                os.write(self._lock.descriptor, canonical({"host": socket.gethostname(), "process": process}))

    def write_end(self, end: End) -> None:
        """Record how it ended. If that fails, only the caller knows the end, and for others the effect is in doubt."""
        temporary = self._done.with_suffix(".tmp")
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
            write_new(temporary, canonical(asdict(end)))
            temporary.replace(self._done)
            sync_directory(self._folder)
            self.output.unlink(missing_ok=True)
            self.errors.unlink(missing_ok=True)

    def excerpt(self, path: Path) -> str:
        """Return what the command wrote into this file; if that is long, its beginning and its end."""
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size <= OUTPUT_KEPT:
                    return _text(file.read())
                begin = file.read(OUTPUT_KEPT // 2)
                file.seek(-(OUTPUT_KEPT // 2), os.SEEK_END)
                return f"{_text(begin)}\n[... {size - OUTPUT_KEPT} bytes ...]\n{_text(file.read())}"
        except OSError as error:
            return f"(cannot be read: {error})"

    # Finding out

    @property
    def is_started(self) -> bool:
        """Whether it was started, or was about to be."""
        return self._started.exists()

    def is_held(self) -> bool:
        """Return whether a process of the command, or the worker that starts it, may be alive."""
        mark = os.open(self._started, os.O_RDWR)
        try:
            return sys.platform == "win32" or not _try_lock(mark, exclusive=False)
        finally:
            os.close(mark)

    def read(self) -> End | None:
        """Return how it ended; None if that was not recorded."""
        try:
            return End(**parse(self._done.read_bytes()))
        except FileNotFoundError:
            return None

    @property
    def owner(self) -> str:
        """The recorded process, as text."""
        try:
            recorded = parse(self._started.read_bytes())
            return f"process {recorded['process']} on {recorded['host']}"
        except (OSError, CodecError, LookupError, TypeError):
            return "which process was not recorded"


def _try_lock(file: int, *, exclusive: bool) -> bool:
    """Try to lock an open file; return whether it worked. On Windows, without such locks, it always returns True."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _text(data: bytes) -> str:
    return redacted(data.decode("utf-8", "replace"), in_data=True).replace("\0", "\ufffd")
