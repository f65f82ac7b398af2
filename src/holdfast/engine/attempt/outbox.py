"""Everything an attempt writes: Commits under the fence of its lease, numbered one by one.

What may wait is buffered and goes into the next Commit. A Commit that is refused for its content does not affect the
Commits after it. A Commit that is refused because the lease is over ends the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias, TypeVar

from holdfast.engine.attempt.discovery import Discovery
from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.standstill import Standstill
from holdfast.engine.attempt.stop_reasons import Cancelled, Stop, Unwind, look_at
from holdfast.engine.effects.intents import Intents
from holdfast.engine.runtime import log
from holdfast.model.commit import Commit, Refusal, Verdict, under_lease
from holdfast.model.errors import HoldfastError, NotAStore, SchemaMismatch, StoreDamaged, StoreReplaced
from holdfast.model.operations import Operation, RequireUndo, WriteEffect, WriteStep
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.store.transaction import StoreTransaction

T = TypeVar("T")
TransactedWork: TypeAlias = Callable[[StoreTransaction], Awaitable[tuple[T, tuple[Operation, ...]]]]
"""Work done in a transaction. It returns its result, and the operations to write with it."""


class Sender(HeldTask, Protocol):
    """The attempt that an outbox writes for."""

    @property
    def over(self) -> bool:
        """Whether the attempt writes nothing any more: its task is suspended, ended or fenced."""

    @property
    def intents(self) -> Intents:
        """Its effects."""

    @property
    def discovery(self) -> Discovery:
        """Its discovery replays, which write nothing."""

    @property
    def standstill(self) -> Standstill:
        """Where its branches stand still while the task is paused."""

    def stop(self, why: Stop, /) -> None:
        """Interrupt the task's code."""

    def lose_lease(self, why: str, /, *, elsewhere: bool = True) -> None:
        """Stop and write nothing, because the lease is over. ``elsewhere``: the task went to another worker."""

    async def check(self) -> None:
        """Return only while this attempt may act."""


class Outbox:
    """The writing side of an attempt."""

    __slots__ = (
        "_acknowledged",
        "_alone",
        "_attempt",
        "_buffered",
        "_generation",
        "_noted",
        "_sequence",
        "_unanswered",
        "must_undo",
        "on_applied",
        "version",
    )

    def __init__(self, attempt: Sender) -> None:
        """Start from the task as the claim reported it."""
        task = attempt.task
        self._attempt = attempt
        self.must_undo = task.must_undo
        """Whether completed steps have to be undone if the task fails."""
        self.version = task.version
        """The version of the task's AgentState, as the store last reported it."""
        self.on_applied: Callable[[], None] | None = None
        """Called after each Commit that the store has applied."""
        self._sequence = self._acknowledged = task.sequence
        self._alone: asyncio.Event | None = None
        """While one branch has the outbox for itself: the event that is set when it is done."""
        self._generation = 0
        self._unanswered = 0
        self._noted: dict[str, int] = {}
        """The number of the last answered Commit for each line or effect, while other Commits are unanswered."""
        self._buffered: tuple[Operation, ...] = ()

    def take_over(self, task: Task) -> None:
        """Continue from the task as the store has it."""
        self.must_undo, self.version = task.must_undo, task.version

    # Commits

    @property
    def is_sending(self) -> bool:
        """Whether the store has not answered everything yet: the sender must receive the answer."""
        return self._unanswered > 0 and not self._attempt.over

    async def commit(self, *operations: Operation) -> Verdict:
        """Make these durable, with what was buffered before them. Raises Unwind if the lease is over.

        A refusal because of the operations themselves is raised and changes nothing. It does not affect later Commits.
        """
        await self._line_up()
        buffered = self._buffered
        if buffered:
            operations, self._buffered = (*buffered, *operations), ()
        try:
            return await self._pass(operations)
        except HoldfastError:
            self._put_back(buffered)
            raise

    async def commit_while(self, holds: Callable[[], bool], operation: Operation) -> None:
        """Make this durable, with what was buffered before it.

        It is left out if ``holds`` returns False just before it is sent: a newer record may exist already.
        """
        await self._line_up()
        buffered, self._buffered = self._buffered, ()
        try:
            await self._pass((*buffered, operation), holds)
        except HoldfastError:
            self._put_back(buffered)
            raise

    def _put_back(self, buffered: tuple[Operation, ...]) -> None:
        """Put what was not written into the next Commit, except lines that have a newer record by now."""
        kept = [one for one in buffered if not isinstance(one, WriteStep) or self._is_latest(one.step)]
        self._buffered = (*kept, *self._buffered)

    def _is_latest(self, step: Step) -> bool:
        known = self._attempt.journal.get(step.key)
        return known is None or known is step or known.round != step.round

    async def commit_surely(self, *operations: Operation) -> Verdict:
        """Commit, and wait for the result even if the caller is cancelled meanwhile."""
        sending = asyncio.ensure_future(self.commit(*operations))
        sending.add_done_callback(look_at)
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            if not sending.done():
                await asyncio.wait([sending])
            raise

    async def _line_up(self) -> None:
        """Wait while another branch has the outbox for itself. Raises Unwind if nothing may be written.

        The caller must take the buffered operations only after this. They belong to the transaction of that branch,
        and a caller that is cancelled while it waits here would lose them.
        """
        if self._attempt.over or self._attempt.discovery.is_asking:
            raise Unwind
        while self._alone is not None:
            await self._alone.wait()
            if self._attempt.over:
                raise Unwind

    async def _pass(self, operations: tuple[Operation, ...], holds: Callable[[], bool] | None = None) -> Verdict:
        while True:
            generation = self._generation
            sent = self._numbered(operations, holds)
            number, cancelled = self._sequence, None
            self._unanswered += 1
            try:
                verdict = await self._attempt.services.committer.put(sent)
            except (StoreDamaged, StoreReplaced, NotAStore, SchemaMismatch) as error:
                # Nothing can be recorded here any more. The task did not fail: it must neither count an attempt nor
                # begin to undo its steps because of this.
                log.logger.error(
                    "task %s: cannot continue in this process: %s",
                    self._attempt.task.id,
                    error,
                    extra={"task_id": self._attempt.task.id},
                )
                self._attempt.lose_lease(str(error), elsewhere=False)
                raise Unwind from error
            except asyncio.CancelledError as error:
                if self._attempt.over:
                    raise
                # The task may continue without this branch. The attempt must know what the store has applied, or the
                # next try would do it again. So the Commit is sent once more; the store recognises its number.
                cancelled, verdict = error, await self._attempt.services.committer.put(sent)
            finally:
                self._unanswered -= 1
            if verdict.refusal is None:
                self._applied(sent.operations, verdict, number)
                if cancelled is not None:
                    raise cancelled
                return verdict
            if generation == self._generation:
                # The first branch to see this refusal: the numbers of all Commits sent after it are void.
                self._generation += 1
                self._sequence = self._acknowledged = verdict.sequence
            if cancelled is not None:
                raise cancelled
            if verdict.refusal is not Refusal.OUT_OF_ORDER:
                raise self._refused(verdict)

    def _numbered(self, operations: tuple[Operation, ...], holds: Callable[[], bool] | None) -> Commit:
        """Give the Commit its number. Only now check whether its last operation still holds: later ones come after."""
        if holds is not None and not holds():
            operations = operations[:-1]
            if not operations:
                raise Unwind
        self._sequence += 1
        return self._under_lease(self._sequence, operations)

    def _under_lease(self, number: int, operations: tuple[Operation, ...]) -> Commit:
        task, worker = self._attempt.task, self._attempt.lease.worker_id
        return under_lease(task, worker, number, operations, by=worker)

    def _applied(self, operations: tuple[Operation, ...], verdict: Verdict, number: int) -> None:
        self._acknowledged = verdict.sequence
        self.version = max(self.version, verdict.version)
        self._note(operations, number)
        if self.on_applied is not None:
            self.on_applied()
        if verdict.cancel_requested is not None and not self._attempt.over:
            self._attempt.stop(Cancelled(verdict.cancel_requested))
        elif verdict.paused:
            self._attempt.standstill.begin()

    def _refused(self, verdict: Verdict) -> BaseException:
        if verdict.refusal in {Refusal.SUPERSEDED, Refusal.NOT_FOUND}:
            self._attempt.lose_lease(str(verdict.error()))
            return Unwind()
        return verdict.error()

    def _note(self, operations: tuple[Operation, ...], number: int) -> None:
        """Remember what was written. Of two Commits about one line, the answer to the first may arrive last."""
        for operation in operations:
            kind = type(operation)
            if kind is WriteStep:
                if self._is_new(operation.step.key, number):  # type: ignore[union-attr]
                    self._attempt.journal.note(operation.step)  # type: ignore[union-attr]
            elif kind is WriteEffect:
                if self._is_new(operation.effect.effect_id, number):  # type: ignore[union-attr]
                    self._attempt.intents.note(operation.effect)  # type: ignore[union-attr]
            elif kind is RequireUndo:
                self.must_undo = operation.required  # type: ignore[union-attr]
        if self._noted and not self._unanswered:
            self._noted.clear()

    def _is_new(self, what: str, number: int) -> bool:
        if self._noted.get(what, number) > number:
            return False
        if self._unanswered:
            self._noted[what] = number
        return True

    def buffer(self, *operations: Operation) -> None:
        """Put operations into the next Commit: for what is only needed if something follows it."""
        if self._attempt.discovery.is_under_way:
            return
        for operation in operations:
            self._buffered += (operation,)
            if type(operation) is WriteStep:
                self._attempt.journal.note(operation.step)

    @property
    def is_flushed(self) -> bool:
        """Whether nothing waits for the next Commit."""
        return not self._buffered

    def forget_buffered(self) -> None:
        """Drop what waits for the next Commit."""
        self._buffered = ()

    async def flush(self) -> None:
        """Make durable what waits for the next Commit."""
        if self._buffered:
            await self.commit()

    # Sharing a transaction of the database

    async def transact(self, work: TransactedWork[T], *, timeout: float) -> T:
        """Do ``work`` in a transaction that also writes the operations it returns, with what was buffered before.

        ``work`` may run more than once, and is written once. If this raises, nothing was written. The exceptions are
        Unwind and a cancel: after these it is unknown. So the number is not used again, and the next Commit finds out.
        """
        while True:
            await self._attempt.check()
            async with self.alone_in_line():
                value, verdict = await self._transact_once(work, timeout)
            if verdict.refusal is None:
                return value
            if verdict.refusal is not Refusal.OUT_OF_ORDER:
                raise self._refused(verdict)

    @asynccontextmanager
    async def alone_in_line(self) -> AsyncIterator[None]:
        """Let no other branch send a Commit until the block ends; earlier Commits are answered when it begins.

        Commits wait in the committer, in the order of their numbers; a transaction does not wait there.
        """
        while self._alone is not None:
            await self._alone.wait()
        alone = self._alone = asyncio.Event()
        try:
            while self._sequence != self._acknowledged:
                await self._pass(())  # after all of them, also those of branches that were cancelled meanwhile
            yield
        finally:
            self._alone = None
            alone.set()

    async def _transact_once(self, work: TransactedWork[T], timeout: float) -> tuple[T, Verdict]:
        number = self._sequence = self._sequence + 1
        sent: tuple[Operation, ...] = ()
        buffered: tuple[Operation, ...] = ()

        async def whole(transaction: StoreTransaction) -> tuple[T, Commit]:
            nonlocal sent, buffered
            value, operations = await work(transaction)
            if self._attempt.over:
                raise Unwind
            self._put_back(buffered)  # taken by an earlier run of this function, if the store runs it again
            buffered, self._buffered = self._buffered, ()
            sent = (*buffered, *operations)
            return value, self._under_lease(number, sent)

        self._unanswered += 1
        try:
            value, verdict = await self._attempt.services.store.transact(whole, timeout=timeout)
        except asyncio.CancelledError:
            if not await self._was_written(number, sent):
                self._put_back(buffered)
            raise
        except BaseException:
            self._put_back(buffered)
            raise
        finally:
            self._unanswered -= 1
        assert verdict is not None  # noqa: S101 - there was a Commit
        if verdict.refusal is None:
            self._applied(sent, verdict, number)
        else:
            self._put_back(buffered)
        return value, verdict

    async def _was_written(self, number: int, sent: tuple[Operation, ...]) -> bool:
        """Find out whether a transaction whose caller was cancelled has been written: then its number is used up."""
        if self._attempt.over or not sent:
            return False
        probe = self._under_lease(number, ())
        verdict = await self._attempt.services.committer.put(probe)
        if verdict.refusal is None and verdict.duplicate:
            self._applied(sent, verdict, number)
            return True
        if verdict.refusal is None:
            self._acknowledged = verdict.sequence
        return False
