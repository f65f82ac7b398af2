"""Looking at a SQLite file without opening it as a store, which would bring it to this version's schema."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import apsw

from holdfast.model.errors import NotAStore
from holdfast.store.sqlite.connection import APPLICATION_ID
from holdfast.store.sqlite.errors import translated
from holdfast.store.sqlite.inherited import refuse_inherited

_HEADER = 20
_WAL = b"\x02\x02"
"""Bytes 18 and 19 of a file whose journal is a WAL."""


@dataclass(frozen=True, slots=True)
class Peeked:
    """What stands in a file before it is opened."""

    schema: int
    """0 where nothing was set up yet."""
    is_wal: bool


def peek(path: Path) -> Peeked:
    """Look at a file, and change nothing in it. Raises as opening it does, where it is not a store."""
    refuse_inherited(str(path))
    path = path.resolve()  # SQLite keeps the WAL beside the file itself, not beside a link to it
    wal = path.with_name(f"{path.name}-wal")
    # Even a reader that may not write makes a -wal and a -shm beside the file, unless it takes the file for one that
    # does not change. That is only true where no WAL holds newer pages.
    mode = "mode=ro" if wal.exists() and wal.stat().st_size else "immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?{mode}"
    with translated(str(path)):
        header = _read_header(path)
        with closing(apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)) as connection:
            return Peeked(_schema(connection, path), header[18:20] == _WAL)


def _read_header(path: Path) -> bytes:
    """Return the first bytes of the file, read through SQLite.

    A file of our own would, when closed, drop every lock that this process has on it: it may be open as a store.
    """
    file = apsw.VFSFile("", str(path.resolve()), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        return file.xRead(_HEADER, 0)
    finally:
        file.xClose()


def _schema(connection: apsw.Connection, path: Path) -> int:
    tables = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and connection.pragma("application_id") != APPLICATION_ID:
        raise NotAStore(f"{path} is the SQLite database of another program; choose another file")
    if "migrations" not in tables:
        return 0
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM migrations").get)
