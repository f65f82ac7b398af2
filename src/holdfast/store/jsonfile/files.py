"""Files that are whole or absent, and several of them changed as one.

A file is replaced by writing a temporary one, fsync, rename, fsync of the directory. Several files change together
through a journal: it holds their new contents, and from the moment it is renamed into place they count, even if the
process dies before the files themselves are written: the process that opens the directory next finishes the work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.store.privacy import FILE, of_folder, permissions, set_mode

FORMAT = "holdfast.json"
"""The first file of a store. The others are as private as this one."""
JOURNAL = "commit.json"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
TEMPORARY = ".tmp"
"""How files end that were never finished; they mean nothing."""


def write_whole(path: Path, content: bytes) -> None:
    """Replace the file: readers see the old bytes or the new ones, also after a power cut."""
    kept, fresh = permissions(path), _of_store(path)
    if not path.parent.is_dir():
        path.parent.mkdir()
        path.parent.chmod(of_folder(fresh))
        _sync_directory(path.parent.parent)
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        with os.fdopen(os.open(temporary, _NEW, FILE), "wb") as file:
            set_mode(file.fileno(), fresh if kept is None else kept)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # on a full disk, every byte counts
            temporary.unlink()
        raise
    _sync_directory(path.parent)


def _of_store(path: Path) -> int:
    """Return the permissions of a new file: those of the store, which its owner may have changed."""
    found = (permissions(folder / FORMAT) for folder in (path.parent, path.parent.parent))
    return next((mode for mode in found if mode is not None), FILE)


def remove(path: Path) -> None:
    """Delete the file if it is there."""
    if path.exists():
        path.unlink()
        _sync_directory(path.parent)


def write_together(root: Path, files: Mapping[str, str | None]) -> None:
    """Make all these files count, by relative path; None deletes one. ``finish`` puts them in their places."""
    write_whole(root / JOURNAL, json.dumps(files, ensure_ascii=True, indent=1).encode())


def finish(root: Path) -> None:
    """Put the files of a journal in their places, as often as it takes; without a journal there is nothing to do."""
    journal = root / JOURNAL
    if not journal.exists():
        return
    for name, content in json.loads(journal.read_bytes()).items():
        if content is None:
            remove(root / name)
        else:
            write_whole(root / name, content.encode())
    remove(journal)


def size_below(root: Path) -> int:
    """Return how many bytes all files have together; one that goes meanwhile has none."""
    total = 0
    for file in root.rglob("*"):
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _sync_directory(path: Path) -> None:
    if os.name == "nt":
        return  # a directory cannot be opened there; NTFS journals the rename itself
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
