"""Creating a file: complete or not at all, never over another file.

    temporary file, fsync -> hard link under the final name -> fsync of the directory -> temporary name removed

A link, unlike a rename, fails if the name is taken. If the process is killed, the path holds nothing or the whole file.
The content identifies the effect: a file with the same content counts as made, by any writer. So this is not a lock: if
two tasks create the same file with the same content, both succeed.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from holdfast.effects.declaration import effect
from holdfast.effects.durable import absolute, file_name, sync_directory, write_new
from holdfast.effects.errors import FileTaken, Impossible, NotReached
from holdfast.model.doubt import Absent, Happened, Outcome, Unknown

_NO_LINKS_HERE = {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


@effect("once")
def create_file(path: str | os.PathLike[str], content: str | bytes, *, effect_id: str) -> str:
    """Create the file with this content, and return its path. A path that holds anything else is a FileTaken.

    The path must be absolute, in a directory that exists and that every worker sees in the same place. No other program
    may remove or change the file before the step is recorded: a file that is gone counts as never made.
    """
    target, data = absolute("the path", path), _as_bytes(content)
    # With a random part in its name: a call that is believed dead may still be writing under the same effect id.
    temporary = target.parent / f".{file_name(effect_id)}.{secrets.token_hex(4)}.tmp"
    try:
        write_new(temporary, data)
    except OSError as error:
        raise NotReached(f"cannot write into {target.parent}: {error}") from error
    try:
        _link(temporary, target, data)
        sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return str(target)


@create_file.reconciled_by
def was_created(effect_id: str, path: str | os.PathLike[str], content: str | bytes) -> Outcome:
    """Check the path, after making sure that no call believed dead can still create the file."""
    target, data = absolute("the path", path), _as_bytes(content)
    if not target.parent.is_dir():
        return Unknown(f"{target.parent} does not exist: it was removed, or it is on another machine")
    # Before the check, not after it: a late call then has no temporary file left to link.
    for temporary in target.parent.glob(f".{file_name(effect_id)}.*.tmp"):
        temporary.unlink(missing_ok=True)
    if not os.path.lexists(target):
        return Absent()
    if not _holds(target, data):
        return Unknown(f"{target} holds something else: it was there before, or was changed since")
    sync_directory(target.parent)  # its writer may have died before this
    return Happened(str(target))


def _link(temporary: Path, target: Path, data: bytes) -> None:
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        if not _holds(target, data):
            raise FileTaken(str(target)) from None
    except OSError as error:
        if error.errno in _NO_LINKS_HERE:
            raise NotReached(
                f"{target.parent} does not support hard links, which are needed to create without overwriting"
            ) from error
        raise


def _holds(target: Path, data: bytes) -> bool:
    """Return whether it is a regular file with this content. Check the kind first: opening a FIFO may block."""
    return (
        target.is_file()
        and not target.is_symlink()
        and target.stat().st_size == len(data)
        and target.read_bytes() == data
    )


def _as_bytes(content: str | bytes) -> bytes:
    try:
        return content.encode() if isinstance(content, str) else bytes(content)
    except (UnicodeEncodeError, TypeError) as error:
        raise Impossible(f"the content cannot be written: {error}") from error
