"""Opening SQLite, and its errors in our words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from holdfast.model.errors import (
    InvalidValue,
    NotAStore,
    ReadOnlyStore,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)

_OPEN_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
APPLICATION_ID = 0x486F6C64
"""The letters Hold, in the file's header: how `file` and we tell a store from any other database."""

BUSY_TIMEOUT_MS = 30_000

_STATEMENT_CACHE = 250
"""More than the named queries plus the shapes of the task UPDATE, so that nothing is ever prepared twice."""


def connect(path: str, *, durable: bool) -> apsw.Connection:
    """Open the file, or a private in-memory database for ``:memory:``.

    ``durable`` is synchronous=FULL: with NORMAL, a power cut loses commits that were already acknowledged.
    """
    connection = apsw.Connection(path, flags=_OPEN_FLAGS, statementcachesize=_STATEMENT_CACHE)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)  # others may be opening the same new file
    try:
        _check_is_ours(connection, path)  # first of all: switching to WAL would already change the file
        connection.pragma("foreign_keys", "on")
        if path != ":memory:":
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full" if durable else "normal")
            if sys.platform == "darwin":
                connection.pragma("fullfsync", "on")  # fsync alone does not reach the platter there
    except BaseException:
        connection.close()
        raise
    return connection


def _check_is_ours(connection: apsw.Connection, path: str) -> None:
    empty = connection.execute("SELECT count(*) = 0 FROM sqlite_schema").get
    if not empty and connection.pragma("application_id") != APPLICATION_ID:
        raise NotAStore(f"{path} is the SQLite database of another program; it was left untouched, choose another file")


def check_path(path: Path) -> None:
    """Refuse early, and in words, what SQLite would refuse late and in codes."""
    if path.is_dir():
        raise NotAStore(f"{path} is a directory; name a file, as in sqlite:///{path}/agents.db")
    if not path.parent.is_dir():
        raise NotAStore(f"the folder {path.parent} does not exist; create it, or choose another path")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours, naming the file and the remedy."""
    try:
        yield
    except apsw.NotADBError as error:
        raise NotAStore(f"{path} is not a SQLite database; it was left untouched, choose another file") from error
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError) as error:
        raise ReadOnlyStore(
            f"{path} cannot be written ({error}); check the rights on the file and its folder"
        ) from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreBusy(f"{path} is locked by another program ({error}); close it, or try again") from error
    except apsw.CorruptError as error:
        raise StoreDamaged(
            f"{path} is damaged ({error}); restore a backup, or salvage it with `sqlite3 .recover`"
        ) from error
    except apsw.FullError as error:
        raise StoreError(f"{path} could not grow ({error}); free disk space, nothing was written") from error
    except apsw.IOError as error:
        raise StoreUnavailable(f"{path} could not be read or written ({error}); check the disk") from error
    except (UnicodeEncodeError, OverflowError, apsw.MismatchError, apsw.TooBigError) as error:
        raise InvalidValue(f"a value that {path} cannot hold: {error}; nothing was written") from error
