"""Opening SQLite: the settings of a connection, and the schemas this version knows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import apsw

from holdfast.model.errors import NotAStore
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
        # No plan depends on a bound value: SQLite would prepare most queries on tasks again for every call, to see
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
