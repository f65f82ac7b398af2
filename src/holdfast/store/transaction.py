"""StoreTransaction: one's own SQL, and new tasks, in one database transaction. The rules for every database.

A statement that fails spoils the whole transaction, as PostgreSQL has it, in every database: a test in memory must not
pass with code that a server refuses.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.errors import DeadlineExceeded, HoldfastError, InvalidValue, StoreUnavailable
from holdfast.model.task import NewTask, Submitted
from holdfast.process_fork import Owner
from holdfast.store.checks import check_commits, check_submission

T = TypeVar("T")

_LONGEST_EXCERPT = 80


class StoreTransaction(ABC):
    """An open transaction, as the function sees it that works in it."""

    def __init__(self) -> None:
        """Made by the store, which also ends it."""
        self._owner = Owner("the transaction")
        self._turn = asyncio.Lock()
        self._running: asyncio.Task[Any] | None = None
        self._failure: BaseException | None = None
        self._over = False

    async def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
        """Run one statement and return its rows; a statement that gives none returns an empty list.

        Placeholders are ``$1``, ``$2`` and so on, on every database; the database's own work as well: ``?`` on SQLite,
        ``%s`` on PostgreSQL. After an error nothing of the transaction is written, whatever the function makes of it:
        let the error through, and use ON CONFLICT where one is to be expected.
        """
        return await self._in_turn(excerpt(sql), self._run(sql, parameters))

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        """Store these tasks in this transaction; answer each in order, as StateStore.submit does.

        They are there, and can be claimed, once the transaction is committed. A refusal, such as QueueFull, leaves the
        transaction as it was before this call: the function may catch it and go on.
        """
        check_submission(tasks)
        answer = await self._in_turn("a submission", self._submit(tasks))
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def _in_turn(self, what: str, call: Coroutine[Any, Any, T]) -> T:
        try:
            self._owner.check()
            async with self._turn:  # a database does one statement at a time
                self._check_open(what)
                self._running = asyncio.current_task()
                try:
                    return await call
                except BaseException as error:  # also a cancel: it is not known how much of the statement was done
                    self._failure = error
                    raise
                finally:
                    self._running = None
        finally:
            call.close()  # if it never began

    @abstractmethod
    async def _run(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Run one statement; InvalidValue for one that does not belong into a transaction."""

    @abstractmethod
    async def _submit(self, tasks: Sequence[NewTask]) -> list[Submitted] | HoldfastError:
        """Store tasks; return the error if they are refused, and nothing else of the transaction is lost."""

    def _check_open(self, what: str) -> None:
        if self._over:
            raise HoldfastError(f"the transaction is over, and {what} was not run; use tx inside of its function only")
        if self._failure is not None:
            raise InvalidValue(
                f"{what} was not run: a statement before it failed ({self._failure!r}), and the transaction with it"
            ) from self._failure

    # For the store

    @property
    def is_over(self) -> bool:
        """Whether it takes no more statements from this process."""
        return self._over or self._owner.is_other

    async def end(self) -> None:
        """Take no more statements. Raises if one of them failed, also if the function did not mind."""
        self._over = True
        async with self._turn:
            pass  # the last one may have been left running
        match self._failure:
            case None:
                pass
            case StoreUnavailable():
                raise self._failure
            case _:
                raise InvalidValue(
                    f"a statement failed ({self._failure!r}) and the function went on; nothing was written. Let the "
                    "error through, or use ON CONFLICT where one is to be expected"
                ) from self._failure

    async def abandon(self) -> None:
        """Take no more statements, and stop one that is still under way; return when the database is through."""
        self._over = True
        if self._running is not None:
            self._running.cancel()
        async with self._turn:
            pass


Work = Callable[[StoreTransaction], Awaitable[tuple[T, Commit | None]]]
"""What is done in a transaction: returns its result, and the Commit to be applied with it."""

OPEN_HERE: ContextVar[StoreTransaction] = ContextVar("holdfast_transaction")
"""The transaction whose function makes the current call."""


async def work_in(transaction: StoreTransaction, work: Work[T], timeout: float) -> tuple[T, Commit | None]:
    """Do the work of a transaction that is open, for no longer than its timeout."""
    inside = OPEN_HERE.set(transaction)
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            value, commit = await work(transaction)
            await transaction.end()
    except TimeoutError:
        if limit.expired():
            raise too_long(timeout) from None
        raise
    finally:
        OPEN_HERE.reset(inside)
        await transaction.abandon()
    if limit.expired():
        raise too_long(timeout)
    if commit is not None:
        if not isinstance(commit.guard, Held):
            raise InvalidValue("a transaction carries the Commit of the worker that holds the task; use Held")
        check_commits([commit])
    return value, commit


def too_long(timeout: float) -> DeadlineExceeded:
    """Return the error of a transaction that was open for too long."""
    return DeadlineExceeded(
        f"a transaction was still open after its timeout of {timeout:g} s and was rolled back: nothing of it was "
        "written. Others may have to wait for it, so do what is slow before it; or allow it more with timeout="
    )


def refuse_inside(what: str) -> None:
    """Raise if the caller is the function of a transaction: it would wait for itself, or believe itself inside."""
    transaction = OPEN_HERE.get(None)
    if transaction is not None and not transaction.is_over:
        raise InvalidValue(
            f"{what} is not part of the transaction that is open here; inside of it use tx.execute and tx.submit only, "
            "and do the rest before or after it"
        )


def not_applied(verdict: Verdict) -> Verdict | None:
    """Return the verdict on a Commit that was not applied, and with which its transaction has to be rolled back.

    A number that was used before is out of order: another attempt used it, with other SQL or none.
    """
    if not verdict.duplicate:
        return None if verdict.applied else verdict
    detail = f"a commit of task {verdict.task_id} was applied under this number before"
    return replace(verdict, refusal=Refusal.OUT_OF_ORDER, detail=detail, duplicate=False)


def excerpt(sql: object) -> str:
    """Return the beginning of a statement, for messages."""
    words = " ".join(str(sql).split())
    return repr(words if len(words) <= _LONGEST_EXCERPT else f"{words[:_LONGEST_EXCERPT]}...")
