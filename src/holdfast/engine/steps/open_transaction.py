"""Transaction: an open transaction of the store's database, as the user's function sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack, overload

from holdfast.engine.api.definition import Bound, TaskDefinition
from holdfast.engine.api.handle import Handle
from holdfast.engine.api.new_task import handle_of, new_task
from holdfast.engine.api.signatures import (
    A,
    B,
    C,
    D,
    Task0,
    Task1,
    Task2,
    Task3,
    Task4,
    TransactionOptions,
    refuse_for_task,
)
from holdfast.engine.api.sync.bridge import Crossing, LateCrossing
from holdfast.engine.api.sync.handle import SyncHandle
from holdfast.engine.runtime.services import Services
from holdfast.model.labels import merged_labels
from holdfast.model.task import IfExists
from holdfast.store.transaction import StoreTransaction

R = TypeVar("R")


class Transaction:
    """An open transaction, as the function sees it that works in it."""

    __slots__ = ("_by", "_labels", "_services", "_transaction")

    def __init__(
        self, services: Services, transaction: StoreTransaction, *, labels: Mapping[str, str], by: str = "submit"
    ) -> None:
        """Only the engine creates these. ``labels`` are for all tasks that are submitted here, ``by`` submits them."""
        self._services = services
        self._transaction = transaction
        self._labels = labels
        self._by = by

    async def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
        """Run one statement and return its rows; a statement that gives none returns an empty list.

        Placeholders are ``$1``, ``$2`` and so on, on every database; the database's own work as well: ``?`` on SQLite,
        ``%s`` on PostgreSQL. After an error nothing of the transaction is written, whatever the function makes of it:
        let the error through, and use ON CONFLICT where one is to be expected.
        """
        return await self._transaction.execute(sql, *parameters)

    @overload
    async def submit(self, task: Bound[R], **options: Unpack[TransactionOptions]) -> Handle[R]: ...
    @overload
    async def submit(self, task: str, *args: object, **options: Unpack[TransactionOptions]) -> Handle[Any]: ...
    @overload
    async def submit(self, task: Task0[R], /, **options: Unpack[TransactionOptions]) -> Handle[R]: ...
    @overload
    async def submit(self, task: Task1[A, R], a: A, /, **options: Unpack[TransactionOptions]) -> Handle[R]: ...
    @overload
    async def submit(self, task: Task2[A, B, R], a: A, b: B, /, **options: Unpack[TransactionOptions]) -> Handle[R]: ...
    @overload
    async def submit(
        self, task: Task3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[TransactionOptions]
    ) -> Handle[R]: ...
    @overload
    async def submit(
        self, task: Task4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[TransactionOptions]
    ) -> Handle[R]: ...
    @overload
    async def submit(
        self,
        task: TaskDefinition[..., R],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **options: Unpack[TransactionOptions],
    ) -> Handle[R]: ...

    async def submit(
        self,
        task: Any,
        *args: Any,
        key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        deadline: float | timedelta | datetime | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        labels: Mapping[str, str] | None = None,
        if_exists: IfExists | str = IfExists.RETURN,
        debounce: float | timedelta | None = None,
        debounce_max: float | timedelta | None = None,
        agent_id: str | None = None,
        limits: Sequence[str] = (),
        **unknown: Any,
    ) -> Handle[Any]:
        """Submit a task that exists if and only if this transaction is committed. Its handle can be used after that.

        The options are those of ``hold.submit``. The task is independent: in ``ctx.transaction`` it has the labels of
        the task that submits it, and is not its child. QueueFull, KeyConflict and TaskExists leave the transaction as
        it was before the call, and so does a limit that is not set (NotFound): the function may catch them and go on.
        """
        refuse_for_task("tx.submit", task, unknown, TransactionOptions.__annotations__)
        services = self._services
        new, definition = new_task(
            services.definitions,
            task,
            args,
            now=services.time.now(),
            key=key,
            queue=queue,
            priority=priority,
            deadline=deadline,
            delay=delay,
            at=at,
            if_exists=if_exists,
            debounce=debounce,
            debounce_max=debounce_max,
            agent_id=agent_id,
            limits=limits,
            labels=merged_labels(self._labels, labels),
            by=self._by,
        )
        [answer] = await self._transaction.submit([new])
        return await handle_of(services, new, answer, definition)


class SyncTransaction:
    """An open transaction, as a blocking function sees it."""

    __slots__ = ("_crossing", "_handles", "_transaction")

    def __init__(self, transaction: Transaction, loop: asyncio.AbstractEventLoop) -> None:
        """Made by the engine, on the loop's thread."""
        self._transaction = transaction
        self._crossing = Crossing(loop, "tx")
        self._handles = LateCrossing(loop, "handle of a task")

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
        """See Transaction."""
        return self._crossing.wait(self._transaction.execute(sql, *parameters))

    @overload
    def submit(self, task: Bound[R], **options: Unpack[TransactionOptions]) -> SyncHandle[R]: ...
    @overload
    def submit(self, task: str, *args: object, **options: Unpack[TransactionOptions]) -> SyncHandle[Any]: ...
    @overload
    def submit(self, task: Task0[R], /, **options: Unpack[TransactionOptions]) -> SyncHandle[R]: ...
    @overload
    def submit(self, task: Task1[A, R], a: A, /, **options: Unpack[TransactionOptions]) -> SyncHandle[R]: ...
    @overload
    def submit(self, task: Task2[A, B, R], a: A, b: B, /, **options: Unpack[TransactionOptions]) -> SyncHandle[R]: ...
    @overload
    def submit(
        self, task: Task3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[TransactionOptions]
    ) -> SyncHandle[R]: ...
    @overload
    def submit(
        self, task: Task4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[TransactionOptions]
    ) -> SyncHandle[R]: ...
    @overload
    def submit(
        self,
        task: TaskDefinition[..., R],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **options: Unpack[TransactionOptions],
    ) -> SyncHandle[R]: ...

    def submit(self, task: Any, *args: Any, **options: Any) -> SyncHandle[Any]:
        """See Transaction."""
        handle: Handle[Any] = self._crossing.wait(self._transaction.submit(task, *args, **options))
        return SyncHandle(self._handles, handle)
