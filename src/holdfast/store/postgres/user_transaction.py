"""transact: a user's SQL and a Commit in one transaction of the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.errors import HoldfastError, InvalidValue, StoreError, StoreUnavailable
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transitions import TaskState
from holdfast.store.placeholders import numbered
from holdfast.store.postgres.batch import encode_batch, given_other_input
from holdfast.store.postgres.commit import names_in, read_answer, refused_by_database
from holdfast.store.postgres.connections import PostgresConnection, Row, fetch_on, with_cancel
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.errors import READ_ONLY, is_lost, is_refused, is_trouble, translate
from holdfast.store.postgres.parameters import TextArray
from holdfast.store.postgres.statements import refuse_control
from holdfast.store.postgres.submission import hints_of, is_refusal, read_answers, submission
from holdfast.store.postgres.verdicts import topics_of
from holdfast.store.transaction import StoreTransaction, Work, excerpt, not_applied, too_long, work_in

T = TypeVar("T")

_UNDONE: Final = frozenset({"40P01", "40001"})
"""Deadlock, serialization failure: the database undid it all, and the same again may well succeed."""
_TOO_LONG: Final = frozenset({"25P03", "25P04"})

_MARGIN: Final = 1.0
"""Seconds that the server waits for an idle client beyond the timeout: first the client is to find out by itself."""
_MOST_MILLISECONDS: Final = 2**31 - 1

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class PostgresTransaction(StoreTransaction):
    """The user's end of an open transaction."""

    def __init__(self, db: Database, connection: PostgresConnection, timeout: float) -> None:
        """Use this connection until the transaction is over."""
        super().__init__()
        self.hints: set[str] = set()
        """What to publish once the transaction is committed."""
        self._db = db
        self._connection = connection
        self._where = db.where
        self._timeout = timeout

    async def _run(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        refuse_control(sql)
        is_numbered = numbered(sql, parameters)
        cursor = (psycopg.AsyncRawCursor if is_numbered else psycopg.AsyncCursor)(self._connection)
        try:
            await with_cancel(self._execute(cursor, sql.encode(), parameters))
        except psycopg.Error as error:
            raise self._in_our_words(error, sql) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise InvalidValue(f"{excerpt(sql)} has a value that {self._where} cannot hold: {error}") from error
        if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise StoreError(f"{excerpt(sql)} ended the transaction in {self._where}; leave that to Holdfast")
        return await cursor.fetchall() if cursor.description is not None else []

    async def _execute(
        self, cursor: psycopg.AsyncCursor[Row] | psycopg.AsyncRawCursor[Row], sql: bytes, parameters: tuple[Any, ...]
    ) -> None:
        # Without parameters psycopg would let several statements pass, the last of them perhaps a COMMIT. In a pipeline
        # it never does.
        async with nullcontext() if parameters else self._connection.pipeline():
            await cursor.execute(sql, parameters or None, prepare=False)

    async def _submit(self, tasks: Sequence[NewTask]) -> list[Submitted] | HoldfastError:
        if not tasks:
            return []
        connection, values = self._connection, submission(tasks, self._db.at())
        try:
            await with_cancel(connection.execute(b"SAVEPOINT holdfast", prepare=False))
            try:
                found = await fetch_on(connection, self._db.queries["submit"], values)
            except psycopg.Error as error:
                if not is_refusal(error):
                    raise
                await with_cancel(connection.execute(b"ROLLBACK TO holdfast", prepare=False))
                return translate(error, self._where)
            await with_cancel(connection.execute(b"RELEASE holdfast", prepare=False))
        except psycopg.Error as error:
            raise self._gave_up(error) or translate(error, self._where) from error
        answers = read_answers(tasks, found)
        self.hints |= hints_of(tasks, answers)
        return answers

    def _gave_up(self, error: psycopg.Error) -> HoldfastError | None:
        """Return what it means that the server ended the transaction, if that is what the error says."""
        if error.sqlstate in _TOO_LONG:
            return too_long(self._timeout)
        if is_lost(error) or error.sqlstate in _UNDONE or is_trouble(error):
            return StoreUnavailable(f"{self._where} gave up a transaction ({_words(error)}); nothing of it was written")
        return None

    def _in_our_words(self, error: psycopg.Error, sql: str) -> HoldfastError:
        if (gave_up := self._gave_up(error)) is not None:
            return gave_up
        if error.sqlstate == READ_ONLY:
            return translate(error, self._where)
        if error.sqlstate is None:
            return InvalidValue(f"{excerpt(sql)} cannot be sent: {_words(error)}")
        return StoreError(f"{self._where} refused {excerpt(sql)}: {_words(error)} (SQLSTATE {error.sqlstate})")


def _words(error: psycopg.Error) -> str:
    words = (error.diag.message_primary or str(error)).strip().splitlines()
    return words[0] if words else type(error).__name__


async def transact(db: Database, work: Work[T], timeout: float) -> tuple[T, Verdict | None]:
    """See StateStore."""
    async with _borrowed(db, timeout) as connection:
        try:
            transaction = PostgresTransaction(db, connection, timeout)
            value, commit = await work_in(transaction, work, timeout)
            verdict, hints = await _apply(db, connection, commit)
        except Exception:
            await _roll_back(connection)
            raise
        if verdict is not None and not verdict.applied:
            await _roll_back(connection)
            return value, verdict
        lost = await _finish(db, connection)
    if lost is not None:
        verdict = await _find_out(db, commit, verdict, lost)
    if commit is not None and verdict is not None:
        hints |= topics_of([commit], [verdict])
    db.publish(hints | transaction.hints)
    return value, verdict


@asynccontextmanager
async def _borrowed(db: Database, timeout: float) -> AsyncIterator[PostgresConnection]:
    """Lend a connection with an open transaction, which the server ends by itself should this process freeze."""
    db.open_connections()
    assert db.lendable is not None  # noqa: S101 - opened with the others
    patience = min(round((timeout + _MARGIN) * 1000), _MOST_MILLISECONDS)
    begin = f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = {patience}"
    async with db.lendable.lent(begin) as connection:
        yield connection


async def _apply(
    db: Database, connection: PostgresConnection, commit: Commit | None
) -> tuple[Verdict | None, set[str]]:
    """Apply the Commit in the open transaction; a verdict that refuses it means: roll back."""
    if commit is None:
        return None, set()
    try:
        children = given_other_input([commit])
        found = await fetch_on(connection, db.queries["names_of"], (TextArray(children),)) if children else None
        document, payloads = encode_batch([commit], None if found is None else names_in(found))
        rows = await fetch_on(connection, db.queries["commit_batch"], (document, payloads, db.at()))
    except psycopg.Error as error:
        ours = translate(error, db.where)
        if not (is_refused(error) and isinstance(ours, StoreError)):
            raise ours from error
        await _roll_back(connection)
        return await refused_by_database(db, commit, ours), set()
    [(text,)] = rows
    [verdict], hints = read_answer([commit], text)
    return not_applied(verdict) or verdict, hints


async def _finish(db: Database, connection: PostgresConnection) -> psycopg.Error | None:
    """Commit. Return the error where it leaves open whether that happened."""
    try:
        await with_cancel(connection.execute(b"COMMIT", prepare=False))
    except psycopg.Error as error:
        if is_lost(error):
            return error
        raise translate(error, db.where) from error
    return None


async def _find_out(
    db: Database, commit: Commit | None, verdict: Verdict | None, lost: psycopg.Error
) -> Verdict | None:
    """Ask whether a transaction was committed whose connection was lost meanwhile; StoreUnavailable if not."""
    if commit is None or not isinstance(commit.guard, Held):
        raise StoreUnavailable(
            f"the connection to {db.where} was lost at the end of a transaction, which may have happened; look "
            "for what it wrote before you try again"
        ) from lost
    held, rows = commit.guard, await _standing(db, commit.task_id)
    if not rows:
        return Verdict(task_id=commit.task_id, refusal=Refusal.NOT_FOUND, detail=f"no task {commit.task_id}")
    fence, sequence, state, revision, version, owner, cancel_requested = rows[0]
    if fence != held.fence:
        return Verdict(
            task_id=commit.task_id,
            refusal=Refusal.SUPERSEDED,
            detail=f"task {commit.task_id} is under fence {fence}, not {held.fence}",
            state=TaskState(state),
            fence=fence,
            sequence=sequence,
            revision=revision,
            version=version,
            owner=owner,
            cancel_requested=cancel_requested,
        )
    if sequence < held.sequence:
        raise StoreUnavailable(
            f"the connection to {db.where} was lost at the end of a transaction; nothing of it was written"
        ) from lost
    return verdict


async def _standing(db: Database, task_id: str) -> list[Row]:
    """Ask how the task stands, until the database answers: no caller may go on without it."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return await db.fetch("standing", task_id)
        except StoreUnavailable:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _roll_back(connection: PostgresConnection) -> None:
    with suppress(psycopg.Error):  # lost, which is as good
        await connection.execute(b"ROLLBACK", prepare=False)
