"""Shared by the tools that write files: names made of effect ids, and writes that survive a power cut."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.effects.errors import Impossible

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def absolute(what: str, path: str | os.PathLike[str]) -> Path:
    """Reject a relative path: in another process it means another place, and the file would not be found."""
    found = Path(path)
    if not found.is_absolute():
        raise Impossible(f"{what} is {str(path)!r}; give the absolute path, as another worker may run elsewhere")
    return found


def file_name(effect_id: str) -> str:
    """Return an effect id as part of a file name; ids made by the engine are always valid."""
    if not _SAFE_NAME.fullmatch(effect_id):
        raise Impossible(f"effect id {effect_id!r} cannot be a file name; use up to 100 letters, digits, _ and -")
    return effect_id


def write_new(path: Path, content: bytes) -> None:
    """Create a file and flush its content to disk; FileExistsError if it exists."""
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
    """Make the names in a directory durable: a file on disk without a name is lost."""
    if os.name == "nt":
        return  # Windows cannot open a directory; NTFS journals the names itself
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
