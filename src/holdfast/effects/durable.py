"""What the tools that leave files behind share: names made of effect ids, and writes that outlast a power cut."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.effects.errors import Impossible

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def absolute(what: str, path: str | os.PathLike[str]) -> Path:
    """Refuse a path that means another place in another process, where nobody would find what was done here."""
    found = Path(path)
    if not found.is_absolute():
        raise Impossible(f"{what} is {str(path)!r}; give the whole path, another worker may run in another directory")
    return found


def file_name(effect_id: str) -> str:
    """Return an effect id as a part of a file's name; those of the engine always are one."""
    if not _SAFE_NAME.fullmatch(effect_id):
        raise Impossible(f"effect id {effect_id!r} cannot be a file name; use up to 100 letters, digits, _ and -")
    return effect_id


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, and have its content on disk; FileExistsError if it is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Make names in it durable: a file that is on disk under no name is lost."""
    if os.name == "nt":
        return  # a directory cannot be opened there; NTFS journals the names itself
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
