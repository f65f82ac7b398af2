"""Submitting in the open transaction of a connection that belongs to the caller: of psycopg, or of SQLAlchemy.

The caller commits or rolls back. Until then no other connection sees the tasks. What is said to the server is one
dialogue, whether the connection blocks or not: a savepoint, one call of ``submit``, and the end of the savepoint. So a
refusal leaves the caller's transaction as it was before. SQLAlchemy is recognised by the names of its classes, and
imported only if the caller has done so.

No hint is sent: a NOTIFY would take part in the caller's transaction, and commits with one wait for each other.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Coroutine, Generator, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import psycopg
from psycopg.rows import tuple_row

from holdfast.model.errors import HoldfastError, InvalidValue, StoreError, StoreUnavailable
from holdfast.model.limits import describe
from holdfast.model.task import NewTask, Submitted
from holdfast.process_fork import ForkSafeLock
from holdfast.store.backend import UserSubmission
from holdfast.store.postgres.batch import encode_tasks
from holdfast.store.postgres.connections import Row, with_cancel
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.errors import UNDEFINED, is_lost, is_trouble, translate, was_undone
from holdfast.store.postgres.submission import has_to_be_in_order, read_answers

Statement: TypeAlias = tuple[str, tuple[object, ...]]
Dialogue: TypeAlias = Generator[Statement, Sequence[Row], list[Submitted]]
"""Yields statements with their values and is sent their rows; returns the answers."""

_BEGIN, _BACK, _END = "SAVEPOINT holdfast", "ROLLBACK TO SAVEPOINT holdfast", "RELEASE SAVEPOINT holdfast"

_ASYNC = frozenset({"AsyncConnection", "AsyncSession", "async_scoped_session"})
_BLOCKING = frozenset({"Connection", "Session", "scoped_session"})
_WANTED: Final = (
    "give a psycopg.AsyncConnection or SQLAlchemy's AsyncConnection or AsyncSession to hold.submit, a "
    "psycopg.Connection or SQLAlchemy's Connection or Session to hold.sync's submit"
)

_UNFIT: Final = {
    "25P01": "connection= has no open transaction: in autocommit mode the task would be stored whatever becomes of "
    "your rows. Open a transaction on it, or leave out connection=",
    "25006": "connection= can only read, and a submission writes; begin its transaction READ WRITE, on the primary",
    "25P02": "the transaction of connection= has failed before, and PostgreSQL takes nothing more in it; roll it back",
}
_LOST = "08006"
_NO_PRIVILEGE = "42501"


_MAKING = ForkSafeLock()

L = TypeVar("L")


class _ServerError(psycopg.DatabaseError):
    """What another driver reported, in the form of psycopg, for the one place that knows what it means."""

    def __init__(self, message: str, sqlstate: str | None, detail: str | None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self._said = SimpleNamespace(message_primary=message, message_detail=detail)

    @property
    def diag(self) -> Any:  # noqa: ANN401 - of psycopg's, or as good
        return self._said


async def submission_on(db: Database, connection: object, tasks: Sequence[NewTask]) -> UserSubmission:
    """See StateStore."""
    check(connection)
    [(server, database)] = await db.fetch("whereabouts")
    return PostgresSubmission(db, connection, tasks, (server, database), db.at())


class PostgresSubmission:
    """See UserSubmission."""

    def __init__(
        self,
        db: Database,
        connection: object,
        tasks: Sequence[NewTask],
        whereabouts: tuple[str, str],
        at: datetime | None,
    ) -> None:
        """``whereabouts`` name the server and the database of the store."""
        self._db = db
        self._connection = connection
        self._tasks = tasks
        self._whereabouts = whereabouts
        self._at = at

    async def write(self) -> list[Submitted]:
        """See UserSubmission."""
        connection, run = await _async_connection(self._connection)
        async with _turns(connection, asyncio.Lock):
            dialogue = self._talk()
            try:
                statement = next(dialogue)
                while True:
                    try:
                        rows = await run(*statement)
                    except BaseException as error:  # noqa: BLE001 - also a cancel: the dialogue ends what it began
                        statement = dialogue.throw(error)
                    else:
                        statement = dialogue.send(rows)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def write_blocking(self) -> list[Submitted]:
        """See UserSubmission."""
        connection, run = _blocking_connection(self._connection)
        with _turns(connection, ForkSafeLock):
            dialogue = self._talk()
            try:
                statement = next(dialogue)
                while True:
                    try:
                        rows = run(*statement)
                    except BaseException as error:  # noqa: BLE001 - as above
                        statement = dialogue.throw(error)
                    else:
                        statement = dialogue.send(rows)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def _talk(self) -> Dialogue:
        """Submit within a savepoint, which is undone if anything goes wrong."""
        if not self._tasks:
            return []
        try:
            yield _BEGIN, ()
        except psycopg.Error as error:
            raise self._in_our_words(error) from error
        try:
            rows = _as_text((yield self._db.queries["submit_within"], self._values()))
            self._check_place(rows)
            yield _END, ()
        except BaseException as error:
            yield from self._go_back(error)
            if isinstance(error, psycopg.Error):
                raise self._in_our_words(error) from error
            raise
        return read_answers(self._tasks, [row[3:] for row in rows if row[3] is not None])

    def _go_back(self, error: BaseException) -> Generator[Statement, Sequence[Row], None]:
        if isinstance(error, psycopg.Error) and is_lost(error):
            return  # the server has rolled back all of it
        try:
            yield _BACK, ()
            yield _END, ()
        except psycopg.Error:
            pass  # the connection is gone: the first error says why

    def _values(self) -> tuple[object, ...]:
        document, payloads = encode_tasks(self._tasks)
        # As one text: each driver has its own idea of an array of bytes.
        encoded = msgspec.json.encode([b64encode(payload).decode() for payload in payloads]).decode()
        at = None if self._at is None else self._at.isoformat()
        in_order = "true" if has_to_be_in_order(self._tasks) else "false"
        return (*self._whereabouts, b64encode(document.encode()).decode(), encoded, in_order, at)

    def _check_place(self, rows: Sequence[Row]) -> None:
        server, database, isolation = rows[0][:3]
        if (server, database) != self._whereabouts:
            raise self._elsewhere()
        if isolation != "read committed":
            raise InvalidValue(
                f"the transaction of connection= is at the isolation level {isolation}, and Holdfast writes at read "
                "committed, where every statement sees what was committed before it; begin it at that level, or "
                "submit after it has been committed"
            )

    def _elsewhere(self) -> InvalidValue:
        return InvalidValue(
            f"connection= leads to another database than this store, which is in {self._db.where}: a transaction "
            "cannot reach both. Give a connection to that database, or submit without connection="
        )

    def _in_our_words(self, error: psycopg.Error) -> HoldfastError:
        state, words = error.sqlstate, error.diag.message_primary
        if state in _UNFIT:
            return InvalidValue(_UNFIT[state])
        if state in UNDEFINED:
            return self._elsewhere()
        if state == _NO_PRIVILEGE:
            return StoreError(
                f"the role of connection= may not write Holdfast's tables ({words}); let their owner grant the rights "
                "in grants.sql to it"
            )
        if is_lost(error):
            return StoreUnavailable("connection= was lost, and PostgreSQL rolls back what was not committed")
        if was_undone(error) or is_trouble(error):
            return StoreUnavailable(
                f"{self._db.where} gave up a submission ({words}); your transaction is as it was before it, so try "
                "again, or roll back"
            )
        return translate(error, self._db.where)


def _as_text(rows: Sequence[Row]) -> list[Row]:
    """Return rows with text in place of the bytes that psycopg returns where the client's encoding is SQL_ASCII."""
    return [tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in rows]


_TURNS: WeakKeyDictionary[object, Any] = WeakKeyDictionary()


def _turns(connection: object, make: Callable[[], L]) -> L:
    """Return the lock of a connection. A savepoint undoes all that came after it, also another submission."""
    with _MAKING:
        lock: L = _TURNS.setdefault(connection, make())
    return lock


# The connections that callers have


def check(connection: object) -> None:
    """Raise InvalidValue unless this is a connection of a known kind."""
    if isinstance(connection, psycopg.AsyncConnection | psycopg.Connection):
        return
    if _kind_in_sqlalchemy(connection) is None:
        raise InvalidValue(f"connection= is {describe(connection)}; {_WANTED}")


def _kind_in_sqlalchemy(connection: object) -> str | None:
    """Return which of SQLAlchemy's classes this is made from."""
    for made_from in type(connection).__mro__:
        if made_from.__module__.partition(".")[0] == "sqlalchemy" and made_from.__name__ in _ASYNC | _BLOCKING:
            return made_from.__name__
    return None


async def _async_connection(
    connection: Any,  # noqa: ANN401 - of a library that need not be there
) -> tuple[object, Callable[[str, tuple[object, ...]], Coroutine[Any, Any, Sequence[Row]]]]:
    """Return the connection itself, and what runs a statement on it."""
    if isinstance(connection, psycopg.AsyncConnection):
        cursor: psycopg.AsyncRawCursor[Row] = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)

        async def run(sql: str, values: tuple[object, ...]) -> Sequence[Row]:
            await with_cancel(cursor.execute(sql.encode(), values, prepare=False))
            return await cursor.fetchall() if cursor.description is not None else []

        _check_answers(connection)
        return connection, run
    if _kind_in_sqlalchemy(connection) not in _ASYNC:
        raise InvalidValue("connection= blocks, and hold.submit does not; use it with hold.sync, or give an async one")
    if not hasattr(connection, "sync_connection"):  # a session, or what makes one
        connection = connection() if callable(connection) else connection
        connection = await connection.connection()
    _check_dialect(connection)

    async def run_there(sql: str, values: tuple[object, ...]) -> Sequence[Row]:
        statement, named = _for_sqlalchemy(sql, values)
        with _Translated():
            result = await connection.execute(statement, named, execution_options=_AS_USUAL)
            return [tuple(row) for row in result.all()] if result.returns_rows else []

    return connection.sync_connection, run_there


def _blocking_connection(
    connection: Any,  # noqa: ANN401 - as above
) -> tuple[object, Callable[[str, tuple[object, ...]], Sequence[Row]]]:
    """Return the connection itself, and what runs a statement on it."""
    if isinstance(connection, psycopg.Connection):
        cursor: psycopg.RawCursor[Row] = psycopg.RawCursor(connection, row_factory=tuple_row)

        def run(sql: str, values: tuple[object, ...]) -> Sequence[Row]:
            cursor.execute(sql.encode(), values, prepare=False)
            return cursor.fetchall() if cursor.description is not None else []

        _check_answers(connection)
        return connection, run
    if _kind_in_sqlalchemy(connection) not in _BLOCKING:
        raise InvalidValue(
            "connection= is async, and hold.sync blocks; use it with hold.submit, or give a blocking one"
        )
    if not hasattr(connection, "dialect"):  # a session, or what makes one
        connection = connection() if callable(connection) else connection
        connection = connection.connection()
    _check_dialect(connection)

    def run_there(sql: str, values: tuple[object, ...]) -> Sequence[Row]:
        statement, named = _for_sqlalchemy(sql, values)
        with _Translated():
            result = connection.execute(statement, named, execution_options=_AS_USUAL)
            return [tuple(row) for row in result.all()] if result.returns_rows else []

    return connection, run_there


def _check_answers(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    if not connection.closed and connection.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF:
        raise InvalidValue(
            "connection= is in pipeline mode, where a refusal would spoil all of the pipeline; submit before or after "
            "the block `with connection.pipeline()`"
        )


def _check_dialect(connection: Any) -> None:  # noqa: ANN401
    if connection.dialect.name != "postgresql":
        raise InvalidValue(f"connection= is a connection to {connection.dialect.name}, and this store is in PostgreSQL")


_AS_USUAL: Final = {"stream_results": False, "yield_per": None, "no_parameters": False}
"""Options of statements that a connection may have for all of its own, and that would not fit ours."""


def _for_sqlalchemy(sql: str, values: tuple[object, ...]) -> tuple[object, dict[str, object]]:
    """Return the statement with its values by name, as every driver behind SQLAlchemy takes them."""
    from sqlalchemy import text  # noqa: PLC0415 - the caller has imported it

    for number in range(len(values), 0, -1):
        sql = sql.replace(f"${number}", f":value_{number}")
    return text(sql), {f"value_{number}": value for number, value in enumerate(values, 1)}


class _Translated:
    """Turn an error of SQLAlchemy into one of psycopg's kind."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise what happened inside."""
        original = getattr(error, "orig", None)
        if error is None or original is None:
            return
        if isinstance(original, psycopg.Error):
            raise original from error
        cause = original.__cause__ or original
        state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
        if getattr(error, "connection_invalidated", False):
            state = _LOST
        said = getattr(original, "diag", None)
        message = getattr(said, "message_primary", None) or getattr(cause, "message", None) or str(original)
        detail = getattr(said, "message_detail", None) or getattr(cause, "detail", None)
        raise _ServerError(message, state, detail) from error
