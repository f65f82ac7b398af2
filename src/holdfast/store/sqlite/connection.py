"""Opening SQLite, and its errors in our words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import apsw

from holdfast.model.errors import (
    HoldfastError,
    InvalidValue,
    NotAStore,
    ReadOnlyStore,
    SchemaMismatch,
    StoreBusy,
    StoreDamaged,
    StoreUnavailable,
)
from holdfast.store.handles import NoHandleLeft, are_exhausted
from holdfast.store.sqlfiles import Migration, migrations
from holdfast.store.sqlite.inherited import refuse_inherited

MIGRATIONS = migrations("holdfast.store.sqlite.migrations")
"""Every schema this version knows, oldest first."""

_OPEN_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
APPLICATION_ID = 0x486F6C64
"""The letters Hold, in the file's header: how `file` and we tell a store from any other database."""

BUSY_TIMEOUT_MS = 30_000

_UPGRADED = "holdfast_was_upgraded_to_schema_{}_restart_this_process"
"""A function that stands in the file's triggers. SQLite tells its name to a process that does not have it."""

_STATEMENT_CACHE = 250
"""More than the named queries plus the shapes of the task UPDATE, so that nothing is ever prepared twice."""


def connect(path: str, *, durable: bool) -> apsw.Connection:
    """Open the file, or a private in-memory database for ``:memory:``.

    ``durable`` is synchronous=FULL: with NORMAL, a power cut loses commits that were already acknowledged.
    """
    if path != ":memory:":
        refuse_inherited(path)
    connection = apsw.Connection(path, flags=_OPEN_FLAGS, statementcachesize=_STATEMENT_CACHE)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)  # others may be opening the same new file
    try:
        _check_is_ours(connection, path)  # first of all: switching to WAL would already change the file
        prove_version(connection)
        connection.pragma("foreign_keys", "on")
        # No plan depends on a bound value: SQLite would prepare most queries on tasks anew for every call, to see
        # whether the value at hand fits one of the partial indexes.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if path != ":memory:":
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full" if durable else "normal")
            connection.pragma("wal_autocheckpoint", 0)  # the writer decides when
            if sys.platform == "darwin":
                connection.pragma("fullfsync", "on")  # fsync alone does not reach the platter there
    except BaseException:
        connection.close()
        raise
    return connection


def prove_version(connection: apsw.Connection, known: Sequence[Migration] = MIGRATIONS) -> None:
    """Make one function for each schema this version knows. Without that of the file's schema, writing fails.

    This is how a process of an older version stops when a newer one has migrated the file under it. The names stand in
    triggers of the migrations. Nothing calls the functions.
    """
    for migration in known:
        connection.create_scalar_function(_UPGRADED.format(migration.version), lambda *_: None, 0, deterministic=True)


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


class translated:  # noqa: N801 - reads as a function does, and costs a third of one made by contextlib
    """Turn SQLite's errors into ours, naming the file and the remedy."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        """Name the file."""
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise in our words what happened inside."""
        if error is not None and (ours := in_our_words(self._path, error)) is not None:
            raise ours from error


def in_our_words(path: str, error: BaseException) -> HoldfastError | None:  # noqa: PLR0911 - one answer a kind
    """Return what an error of SQLite means; None for one that has no such meaning."""
    match error:
        case apsw.SQLError() if "no such function: holdfast_was_upgraded" in str(error):
            return SchemaMismatch(
                f"a newer version of Holdfast has migrated {path}; nothing was written, restart this process with it"
            )
        case apsw.NotADBError():
            return NotAStore(f"{path} is not a SQLite database; it was left untouched, choose another file")
        case apsw.CantOpenError() if are_exhausted():
            return NoHandleLeft(path)
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return ReadOnlyStore(f"{path} cannot be written ({error}); check the rights on the file and its folder")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{path} is locked by another program ({error}); close it, or try again")
        case apsw.CorruptError():
            return StoreDamaged(f"{path} is damaged ({error}); restore a backup, or salvage it with `sqlite3 .recover`")
        case apsw.FullError():
            return StoreUnavailable(f"{path} could not grow ({error}); free disk space, nothing was written")
        case apsw.IOError() | apsw.ProtocolError() | apsw.NoMemError():
            return StoreUnavailable(f"{path} could not be read or written ({error}); check the disk")
        case UnicodeEncodeError() | OverflowError() | apsw.MismatchError() | apsw.TooBigError():
            return InvalidValue(f"a value that {path} cannot hold: {error}; nothing was written")
        case _:
            return None
