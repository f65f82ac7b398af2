"""Inserting a row into your own database, with the effect id as its unique key.

The key prevents repeats: a second insert under it does nothing, from any worker and at any time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from holdfast.effects.declaration import Probed, effect
from holdfast.effects.errors import Impossible, NotReached, RowRefused
from holdfast.model.doubt import Absent, Happened, Outcome

_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_REFUSALS = ("DataError", "IntegrityError", "NotSupportedError", "ProgrammingError")
"""Errors with which the database reports that it did not do it. An OperationalError may also be a lost connection."""


class Connection(Protocol):
    """The part of a DB-API connection that is used here."""

    def cursor(self) -> Any: ...  # noqa: ANN401, D102
    def commit(self) -> object: ...  # noqa: D102
    def rollback(self) -> object: ...  # noqa: D102
    def close(self) -> object: ...  # noqa: D102


def insert_row(
    connect: Callable[[], Connection], table: str | Sequence[str], *, key_column: str = "effect_id"
) -> Probed[..., str]:
    """Return a tool that inserts a row, given as a mapping from column to value, and returns its key.

    ``connect`` opens a blocking connection to SQLite (``sqlite3``) or PostgreSQL (``psycopg``), not in autocommit mode;
    each call opens one and closes it. With ``sqlite3`` it must not be the file in which Holdfast keeps its tasks: two
    SQLite libraries in one process break each other's locks on a file. For rows in Holdfast's own database use
    ``ctx.transaction``.

    ``table`` is a name, or its parts: ``("billing", "invoices")``. ``key_column`` must have its own UNIQUE constraint;
    without it the database rejects the insert. No other program may delete the row before the step is recorded.
    """
    rows = _Rows((table,) if isinstance(table, str) else tuple(table), key_column)

    @effect("once")
    def insert(row: Mapping[str, Any], *, effect_id: str) -> str:
        try:
            connection = connect()
        except Exception as error:
            raise NotReached(f"no connection to the database: {error}") from error
        with _closing(connection):
            driver = _driver_of(connection)
            try:
                rows.insert(connection, driver, effect_id, row)
                connection.commit()
            except tuple(getattr(driver, name) for name in _REFUSALS) as error:
                raise RowRefused(f"the database rejected the row: {error}") from error
        return effect_id

    @insert.reconciled_by
    def was_inserted(effect_id: str, row: Mapping[str, Any]) -> Outcome:
        # Insert the row and roll back. A SELECT is not enough: it does not see a row whose COMMIT is still under way,
        # while an insert under the same key waits until that is decided.
        connection = connect()
        with _closing(connection):
            is_new = rows.insert(connection, _driver_of(connection), effect_id, row)
            connection.rollback()
        return Absent() if is_new else Happened(effect_id)

    return insert


@dataclass(frozen=True, slots=True)
class _Rows:
    table: tuple[str, ...]
    key_column: str

    def __post_init__(self) -> None:
        for name in (*self.table, self.key_column):
            _check_identifier(name)

    def insert(self, connection: Connection, driver: ModuleType, effect_id: str, row: Mapping[str, Any]) -> bool:
        """Insert without committing; return whether the row is new."""
        _refuse_autocommit(connection)
        if self.key_column in row:
            raise Impossible(f"the row has a {self.key_column!r} of its own; that column is for the effect id")
        placeholder = _PLACEHOLDERS[driver.paramstyle]
        columns = ", ".join(_quoted(name, driver) for name in (self.key_column, *row))
        statement = (
            f"INSERT INTO {'.'.join(_quoted(part, driver) for part in self.table)} ({columns}) "  # noqa: S608 - quoted
            f"VALUES ({', '.join([placeholder] * (len(row) + 1))}) "
            # Naming the column makes the database check that it is unique.
            f"ON CONFLICT ({_quoted(self.key_column, driver)}) DO NOTHING"
        )
        cursor = connection.cursor()
        cursor.execute(statement, (effect_id, *row.values()))
        return bool(cursor.rowcount)


def _check_identifier(name: str) -> None:
    if not isinstance(name, str) or not name or "\0" in name:
        raise Impossible(f"{name!r} cannot be the name of a table or column")


def _quoted(name: str, driver: ModuleType) -> str:
    _check_identifier(name)
    quoted = '"' + name.replace('"', '""') + '"'
    # If %s is a placeholder, every percent sign in the statement must be doubled, even between quotes.
    return quoted if driver.paramstyle == "qmark" else quoted.replace("%", "%%")


def _driver_of(connection: Connection) -> ModuleType:
    """Return the DB-API module that a connection comes from, also for a subclass made by the user."""
    for kind in type(connection).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        if getattr(module, "paramstyle", None) in _PLACEHOLDERS:
            return module  # type: ignore[return-value]  # None has no paramstyle
    raise Impossible(f"{type(connection).__qualname__} is not a connection of sqlite3 or psycopg; use one of these")


def _refuse_autocommit(connection: Connection) -> None:
    """Reject autocommit: without a transaction, the trial insert could not be rolled back."""
    # Before Python 3.12, sqlite3 marks it with an isolation level of None, which elsewhere means the server's default.
    is_sqlite = hasattr(connection, "in_transaction")
    is_autocommit = getattr(connection, "autocommit", False) is True
    if is_autocommit or (is_sqlite and getattr(connection, "isolation_level", "") is None):
        raise Impossible("connect() opens a connection in autocommit mode; open it without autocommit")


@contextmanager
def _closing(connection: Connection) -> Iterator[None]:
    """Close the connection in any case. An error in closing does not change what was committed."""
    try:
        yield
    finally:
        with suppress(Exception):
            connection.close()
