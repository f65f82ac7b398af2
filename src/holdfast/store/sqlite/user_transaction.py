"""transact: a user's SQL and a Commit in one transaction, while the one writer of the process waits for both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from holdfast.model.commit import Commit, Verdict
from holdfast.model.errors import Conflict, HoldfastError, InvalidValue, NotFound, QueueFull, StoreError
from holdfast.model.task import NewTask, Submitted
from holdfast.store.placeholders import numbered
from holdfast.store.sqlite.commit import apply_all
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.errors import in_our_words
from holdfast.store.sqlite.submission import submit_all
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.store.sqlite.writer import Execute, Write
from holdfast.store.transaction import StoreTransaction, Work, excerpt, not_applied, too_long, work_in

T = TypeVar("T")


class NotApplied(Exception):
    """No error: it undoes the transaction on its way out, and carries the verdict on the Commit."""

    def __init__(self, verdict: Verdict) -> None:
        """``verdict`` is the refusal."""
        super().__init__(verdict.detail)
        self.verdict = verdict


class SqliteTransaction(StoreTransaction):
    """The user's end of an open transaction."""

    def __init__(self, execute: Execute, write: Write[list[Submitted]], path: str, timeout: float) -> None:
        """``execute`` runs a statement on the writer's connection; the timeout counts from now."""
        super().__init__()
        self.hints: set[str] = set()
        """What to publish once the transaction is committed."""
        self._execute = execute
        self._write = write
        self._path = path
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._is_stopped = False

    async def _run(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        given: tuple[Any, ...] | dict[str, Any] = parameters
        if isinstance(sql, str) and numbered(sql, parameters):
            given = {str(number): value for number, value in enumerate(parameters, 1)}
        try:
            return await self._execute(sql, given, self._gives_up)
        except asyncio.CancelledError:
            self._is_stopped = True  # in the writer's thread the statement may still be under way
            raise
        except apsw.InterruptError as error:
            raise too_long(self._timeout) from error
        except TypeError as error:
            raise InvalidValue(f"{excerpt(sql)} cannot be run: {error}") from error
        except (apsw.Error, UnicodeEncodeError, OverflowError) as error:
            raise in_our_words(self._path, error) or refused(self._path, excerpt(sql), error) from error

    async def _submit(self, tasks: Sequence[NewTask]) -> list[Submitted] | HoldfastError:
        try:
            answers, hints = await self._write(lambda tx: submit_all(tx, tasks))
        except (QueueFull, Conflict, NotFound, InvalidValue) as refusal:
            return refusal
        self.hints |= hints
        return answers

    def _gives_up(self) -> bool:
        return self._is_stopped or time.monotonic() > self._deadline


async def transact(db: Database, work: Work[T], timeout: float) -> tuple[T, Verdict | None]:
    """See StateStore."""
    path = db.path
    done: list[T] = []
    submitted: set[str] = set()

    async def talk(execute: Execute, write: Write[list[Submitted]]) -> Callable[[WriteTransaction], Verdict | None]:
        transaction = SqliteTransaction(execute, write, path, timeout)
        value, commit = await work_in(transaction, work, timeout)
        done.append(value)
        submitted.update(transaction.hints)
        return lambda tx: _apply(tx, commit)

    try:
        verdict, hints = await db.open_writer().transact(talk)
    except NotApplied as refusal:
        return done[0], refusal.verdict
    except apsw.ConstraintError as error:
        if not done:
            raise  # by the work itself, on some other database
        # One that is checked only now, such as a deferred foreign key.
        raise refused(path, "the COMMIT of a transaction", error) from error
    db.publish(hints | submitted)
    return done[0], verdict


def _apply(tx: WriteTransaction, commit: Commit | None) -> Verdict | None:
    if commit is None:
        return None
    [verdict] = apply_all(tx, [commit], one_by_one=True)
    if (refusal := not_applied(verdict)) is not None:
        raise NotApplied(refusal)
    return verdict


def refused(path: str, what: str, error: Exception) -> StoreError:
    """Return what a user hears whose SQL the database does not take."""
    return StoreError(f"{path} refused {what}: {error}")
