"""Inserting a row into a database of your own, with the effect id as its unique key.

The key does the work: a second insert under it does nothing, whoever makes it and however late.
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
"""The database's own answer that it did not do the statement. An OperationalError may also be a lost connection."""


class Connection(Protocol):
    """What is used of a DB-API connection."""

    def cursor(self) -> Any: ...  # noqa: ANN401, D102
    def commit(self) -> object: ...  # noqa: D102
    def rollback(self) -> object: ...  # noqa: D102
    def close(self) -> object: ...  # noqa: D102


def insert_row(
    connect: Callable[[], Connection], table: str | Sequence[str], *, key_column: str = "effect_id"
) -> Probed[..., str]:
    """Return a tool that inserts a row, given as a mapping from column to value, and returns its key.

    ``connect`` opens a blocking connection to SQLite (``sqlite3``) or PostgreSQL (``psycopg``), not in autocommit mode;
    each call opens one and closes it. With ``sqlite3`` it must be another file than the one Holdfast keeps its tasks
    in: two SQLite libraries in one process take away each other's locks on a file. For rows in Holdfast's own database
    there is ``ctx.transaction``.

    ``table`` is a name, or its parts: ``("billing", "invoices")``. ``key_column`` must have a UNIQUE constraint of its
    own, without which the database refuses the insert. Nobody else may delete the row before the step is recorded.
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
                raise RowRefused(f"the database does not take the row: {error}") from error
        return effect_id

    @insert.reconciled_by
    def was_inserted(effect_id: str, row: Mapping[str, Any]) -> Outcome:
        # By inserting it and taking that back. To look for the row would not do: one whose COMMIT is still under way
        # is not there yet, while an insert under the same key waits until that is decided.
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
        """Insert without committing; say whether the row is new."""
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
    # Where %s is a placeholder, a percent sign is one everywhere in the statement, also between quotes.
    return quoted if driver.paramstyle == "qmark" else quoted.replace("%", "%%")


def _driver_of(connection: Connection) -> ModuleType:
    """Return the DB-API module that a connection comes from, also through a subclass of the user's own."""
    for kind in type(connection).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        if getattr(module, "paramstyle", None) in _PLACEHOLDERS:
            return module  # type: ignore[return-value]  # None has no paramstyle
    raise Impossible(f"{type(connection).__qualname__} is no connection of a driver that is known here")


def _refuse_autocommit(connection: Connection) -> None:
    """Without a transaction the question "is it there?" could not be taken back."""
    # Before Python 3.12 sqlite3 says it by an isolation level of None, which elsewhere means the server's default.
    is_sqlite = hasattr(connection, "in_transaction")
    is_autocommit = getattr(connection, "autocommit", False) is True
    if is_autocommit or (is_sqlite and getattr(connection, "isolation_level", "") is None):
        raise Impossible("connect() opens a connection in autocommit mode; open it without")


@contextmanager
def _closing(connection: Connection) -> Iterator[None]:
    """Close it whatever happens. That closing fails changes nothing about what was, or was not, committed."""
    try:
        yield
    finally:
        with suppress(Exception):
            connection.close()
