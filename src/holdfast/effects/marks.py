"""The marks that a command leaves on disk, and the lock that says whether it lives; see commands.py."""

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
"""Bytes of each of the two outputs; of more than that, both ends."""


@dataclass(frozen=True, slots=True)
class End:
    """What is written down of a command's end."""

    exit_code: int | None
    """None: it could not be started."""
    output: str = ""
    errors: str = ""


class Marks:
    """The marks of one effect. As a context manager it lets go of the lock; the command keeps its own hold on it."""

    def __init__(self, folder: Path, effect_id: str) -> None:
        """Know their names; whether there are any is another matter."""
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
        """Let go of the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # Before the start

    def claim(self) -> bool:
        """Leave the mark of a start, on disk, and lock it. False: somebody else holds it, or still runs."""
        if not self._folder.is_dir():
            self._folder.mkdir(0o700, parents=True, exist_ok=True)  # what the command writes is in it
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
        """What the command has to inherit for the lock to live as long as it does."""
        return () if self._lock is None else (self._lock.descriptor,)

    def forget_end(self) -> None:
        """Remove what an earlier start left, or it would be taken for the end of the one to come."""
        if self._done.exists():
            self._done.unlink()
            sync_directory(self._folder)

    # Afterwards

    def name_owner(self, process: int) -> None:
        """Note for people which process it is. Nothing depends on it."""
        if self._lock is not None:
            with suppress(OSError):
                os.ftruncate(self._lock.descriptor, 0)
                os.lseek(self._lock.descriptor, 0, os.SEEK_SET)
                os.write(self._lock.descriptor, canonical({"host": socket.gethostname(), "process": process}))

    def write_end(self, end: End) -> None:
        """Write down how it ended. Where that fails its caller still knows, and everybody else is in doubt."""
        temporary = self._done.with_suffix(".tmp")
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
            write_new(temporary, canonical(asdict(end)))
            temporary.replace(self._done)
            sync_directory(self._folder)
            self.output.unlink(missing_ok=True)
            self.errors.unlink(missing_ok=True)

    def excerpt(self, path: Path) -> str:
        """Return what the command wrote into this file; of much the beginning and the end."""
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
        """Say whether a process of the command may be alive, or the worker that starts it."""
        mark = os.open(self._started, os.O_RDWR)
        try:
            return sys.platform == "win32" or not _try_lock(mark, exclusive=False)
        finally:
            os.close(mark)

    def read(self) -> End | None:
        """Return how it ended, if that was written down."""
        try:
            return End(**parse(self._done.read_bytes()))
        except FileNotFoundError:
            return None

    @property
    def owner(self) -> str:
        """The process that was noted, in words."""
        try:
            noted = parse(self._started.read_bytes())
            return f"process {noted['process']} on {noted['host']}"
        except (OSError, CodecError, LookupError, TypeError):
            return "nobody noted which process"


def _try_lock(file: int, *, exclusive: bool) -> bool:
    """Lock an open file unless somebody holds it. Without such locks (Windows) it always works, and says nothing."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _text(data: bytes) -> str:
    return redacted(data.decode("utf-8", "replace"), in_data=True).replace("\0", "\ufffd")
