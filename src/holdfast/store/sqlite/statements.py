"""What SQL of a user's own may do on the writer's connection: change its own tables, and end nothing.

SQLite itself says what a statement is about to do, when it is prepared: no text is guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import apsw

from holdfast.model.errors import InvalidValue
from holdfast.store.sqlite.connection import MIGRATIONS
from holdfast.store.transaction import excerpt

LOOK_EVERY = 10_000
"""Of SQLite's instructions, between two looks at the clock: a few milliseconds."""

_ENDS_IT = "the transaction is begun and ended around the function, as one with what Holdfast writes"
_STAYS = "it would stay on a connection that others use after this transaction"
_REFUSED = {
    apsw.SQLITE_TRANSACTION: _ENDS_IT,
    apsw.SQLITE_SAVEPOINT: _ENDS_IT,
    apsw.SQLITE_ATTACH: _STAYS,
    apsw.SQLITE_DETACH: _STAYS,
    # A temporary table would also hide one of Holdfast's of the same name.
    apsw.SQLITE_CREATE_TEMP_INDEX: _STAYS,
    apsw.SQLITE_CREATE_TEMP_TABLE: _STAYS,
    apsw.SQLITE_CREATE_TEMP_TRIGGER: _STAYS,
    apsw.SQLITE_CREATE_TEMP_VIEW: _STAYS,
}

_PRAGMAS = frozenset(
    {
        *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"),
        *("foreign_key_list", "foreign_key_check", "defer_foreign_keys", "data_version"),
    }
)
"""What may be asked for. Any other changes the connection or the file, or might with the next SQLite."""

_TABLE_IS = {
    **dict.fromkeys((apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE), 0),
    **dict.fromkeys((apsw.SQLITE_DROP_TABLE, apsw.SQLITE_DROP_VIEW, apsw.SQLITE_ANALYZE), 0),
    **dict.fromkeys((apsw.SQLITE_ALTER_TABLE, apsw.SQLITE_CREATE_INDEX, apsw.SQLITE_DROP_INDEX), 1),
    **dict.fromkeys((apsw.SQLITE_CREATE_TRIGGER, apsw.SQLITE_DROP_TRIGGER), 1),
}
"""Where SQLite names the table, in what it says about each of these."""

_SHADOWS = ("", "_config", "_data", "_docsize", "_idx")
"""How the tables end in which SQLite itself keeps a full-text index that holds no text."""


def _tables_of(sql: str) -> set[str]:
    indexes = re.findall(r"CREATE VIRTUAL TABLE (\w+)", sql)
    return {
        *re.findall(r"CREATE (?:TABLE|VIEW) (\w+)", sql),
        *(index + shadow for index in indexes for shadow in _SHADOWS),
    }


def _own_tables() -> frozenset[str]:
    """Return what the migrations leave, one after the other: one may drop a view and make it again."""
    names = {"migrations"}
    for step in MIGRATIONS:
        names -= set(re.findall(r"DROP VIEW (\w+)", step.sql))
        names |= _tables_of(step.sql)
        names -= set(re.findall(r"ALTER TABLE (\w+) RENAME TO", step.sql))
    return frozenset(names)


OWN_TABLES = _own_tables()
"""Holdfast's own: user code can read them, and only Holdfast changes them."""

_NO_STATEMENT = re.compile(r"(?:\s|;|--[^\n]*|/\*.*?\*/)*", re.DOTALL)


class StatementGuard:
    """Stands at the writer's connection while a user's statement runs."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Take the place once: each change of it would have SQLite prepare every statement again."""
        self._connection = connection
        self._is_on_duty = False
        self._why = ""
        connection.authorizer = self._allow

    def run(
        self, sql: str, parameters: tuple[Any, ...] | dict[str, Any], give_up: Callable[[], bool]
    ) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows. InterruptError when ``give_up``, asked now and then, says so."""
        connection, statements = self._connection, 0

        def one_only(cursor: apsw.Cursor, text: str, values: Any) -> bool:  # noqa: ANN401
            nonlocal statements
            del cursor, values
            statements += not _NO_STATEMENT.fullmatch(text)
            return statements <= 1

        cursor = connection.cursor()
        cursor.exec_trace = one_only
        connection.set_progress_handler(give_up, LOOK_EVERY)
        self._is_on_duty, self._why = True, ""
        try:
            # Not from the cache: Holdfast's own COMMIT lies in there, and was checked before the guard was set.
            return list(cursor.execute(sql, parameters, can_cache=False))
        except apsw.AuthError as error:
            raise InvalidValue(f"{excerpt(sql)} is refused: {self._why}") from error
        except apsw.ExecTraceAbort as error:
            raise InvalidValue(f"{excerpt(sql)} is more than one statement; execute them one by one") from error
        finally:
            self._is_on_duty = False
            connection.set_progress_handler(None)
            cursor.close(force=True)

    def _allow(
        self, action: int, first: str | None, second: str | None, database: str | None, inner: str | None
    ) -> int:
        del database, inner
        if not self._is_on_duty:
            return apsw.SQLITE_OK
        objection = _objection(action, first, second)
        self._why = self._why or objection
        return apsw.SQLITE_DENY if objection else apsw.SQLITE_OK


def _objection(action: int, first: str | None, second: str | None) -> str:
    if action in _REFUSED:
        return _REFUSED[action]
    if action == apsw.SQLITE_PRAGMA and first not in _PRAGMAS:
        return f"PRAGMA {first} is about more than this transaction"
    table = (first, second)[_TABLE_IS[action]] if action in _TABLE_IS else None
    if table in OWN_TABLES:
        return f"the table {table} is Holdfast's own; it can be read, and only Holdfast changes it"
    return ""
