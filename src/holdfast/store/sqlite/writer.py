"""The one writer of a process.

A transaction runs on the event loop itself when no other call wants to write: on a fast disk the hop to a thread costs
more than the commit. Beside others, and in larger batches, only its statements run there, and its COMMIT, which waits
for the disk, runs in the writer's thread while the loop goes on. If another process is writing, it is waited for there,
too.

A conversation is a transaction that stays open while the caller computes: its statements come one by one, and all
of it runs in the thread, because it is not known how long they take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, NoReturn, TypeVar

import apsw

from holdfast.model.clock import Clock
from holdfast.model.errors import ReadOnlyStore, StoreClosed, StoreError, StoreUnavailable
from holdfast.process_fork import Owner
from holdfast.store.place import Nowhere, StorePlace
from holdfast.store.sqlite.connection import BUSY_TIMEOUT_MS
from holdfast.store.sqlite.errors import in_our_words, translated
from holdfast.store.sqlite.gate import Gate
from holdfast.store.sqlite.inherited import keep
from holdfast.store.sqlite.place import FilePlace, raise_epoch
from holdfast.store.sqlite.rows import micros
from holdfast.store.sqlite.statements import StatementGuard
from holdfast.store.sqlite.write_transaction import WriteTransaction

T = TypeVar("T")

Execute = Callable[[str, tuple[Any, ...] | dict[str, Any], Callable[[], bool]], Awaitable[list[tuple[Any, ...]]]]
"""Runs a user's statement with its parameters, and returns its rows, unless the function says to give up."""

Write = Callable[[Callable[[WriteTransaction], T]], Awaitable[tuple[T, set[str]]]]
"""Does work of the store's own, all of it or nothing; returns its result and the hints for after the COMMIT."""

INLINE_ITEMS = 16
"""The disk is not waited for on the loop by a larger batch: the loop has other tasks to serve."""

MOST_HERE = 1000
"""A still larger one is done in the thread as a whole."""

_WITHIN = "holdfast_within"
"""The savepoint around what the store writes within a conversation."""

LONG_WAIT = 1.0
"""Seconds at the gate after which no worker is declared dead for a while: all leases may have lapsed together."""

_CHECKPOINT_PAGES = 4000
"""How long the WAL grows before its pages go into the database: 16 MB, in which a page that every Commit changes is
copied once and not, as with SQLite's 1000, over and over."""

_CHECKPOINT_AGAIN = 1000
"""How much longer it grows, where readers kept its pages from going, before that is tried again."""

_LONG_WAL_PAGES = 16_000
"""When the writer waits for readers, so that the WAL begins again: 64 MB."""


def plain_commit(connection: apsw.Connection) -> None:
    """Commit to the database file, which is durable by itself."""
    connection.execute("COMMIT")


class SqliteWriter:
    """Runs write transactions, one at a time."""

    def __init__(
        self,
        connection: apsw.Connection,
        path: str,
        gate: Gate,
        clock: Clock,
        *,
        commit: Callable[[apsw.Connection], None] = plain_commit,
        always_inline: bool = False,
        place: StorePlace | None = None,
    ) -> None:
        """Take over the connection: no other object may use it.

        ``commit`` makes a finished transaction durable. ``always_inline`` is for a connection that also reads, and so
        must stay in the loop's thread. ``place`` is asked before every transaction.
        """
        self.owner = Owner(f"the store {path}")
        self._connection = connection
        self._path = path
        self._gate = gate
        self._clock = clock
        self._commit = commit
        self._always_inline = always_inline
        self._place = place or Nowhere()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-writer")
        self._turn = asyncio.Lock()
        self.apart: asyncio.Future[Any] | None = None
        """What the thread does on a connection that otherwise stays in the loop's thread, while it does."""
        self._closed = False
        self._guard: StatementGuard | None = None
        self._open_since: float | None = None
        self._has_written = False
        self._changes = 0
        """How many rows the connection had changed when the open transaction began."""
        self._wal_pages = 0
        self._checkpoint_at = _CHECKPOINT_PAGES
        if isinstance(place, FilePlace):
            connection.set_wal_hook(self._note_wal)
        self.stalled_until: float | None = None
        """When, on the boot clock, this process last got the lock after a long wait. Others waited too, and could not
        renew their leases meanwhile."""
        self._failing_since: float | None = None
        """When, on the boot clock, the first of all writes since failed that failed for lack of room, or of rights."""

    async def write(self, work: Callable[[WriteTransaction], T], *, items: int = 1) -> tuple[T, set[str]]:
        """Run ``work`` in a transaction; return its result and the hints, once both are durable."""
        if self._always_inline:
            if items > MOST_HERE:
                return await self.work_apart(lambda: self._transact(work))
            if not self._turn.locked():
                return self._transact(work)
            async with self._turn:  # until a conversation is over
                self._check_open()
                return self._transact(work)
        if items <= INLINE_ITEMS and not self._turn.locked() and self._gate.try_enter():
            try:
                return self._transact(work)
            except apsw.BusyError:
                pass  # a program that knows no gate is writing: wait for it in the thread
            finally:
                self._gate.leave()
        await self._turn.acquire()
        try:
            self._check_open()
            job = self._begin_here(work) if items <= MOST_HERE else None
        except BaseException:
            self._turn.release()
            raise
        if job is None:
            job = self._thread.submit(self._wait_and_transact, work)
        # The turn is over when the thread is done, not when the caller is: a cancelled caller leaves a transaction
        # behind that still owns the connection, and has to be committed.
        answer = asyncio.wrap_future(job)
        answer.add_done_callback(self._end_turn)
        return await asyncio.shield(answer)

    async def work_apart(self, work: Callable[[], T]) -> T:
        """Have something done in the thread on a connection that otherwise stays in the loop's: it takes long.

        Who writes waits for its turn, and who reads waits for ``apart``.
        """
        await self._turn.acquire()
        try:
            self._check_open()
            self.apart = answer = asyncio.wrap_future(self._thread.submit(work))
        except BaseException:
            self._turn.release()
            raise
        answer.add_done_callback(self._end_turn)
        return await asyncio.shield(answer)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self._path} was closed while this write waited for its turn; nothing was written")

    def _end_turn(self, answer: asyncio.Future[Any]) -> None:
        answer.exception()  # looked at, also if the caller is gone
        if answer is self.apart:
            self.apart = None
        self._turn.release()

    def _begin_here(self, work: Callable[[WriteTransaction], T]) -> Future[tuple[T, set[str]]] | None:
        """Do the work on the loop and leave the COMMIT, which waits for the disk, to the thread.

        In the thread, the work would have to ask for the interpreter's lock after every statement. None: another call
        is writing, and has to be waited for in the thread.
        """
        if not self._gate.try_enter():
            return None
        try:
            tx = self._begin(busy_timeout=0)
        except BaseException as error:
            self._gate.leave()
            if isinstance(error, apsw.BusyError):
                return None
            raise
        try:
            result = self._work(tx, work)
        except BaseException:
            self._roll_back()
            self._gate.leave()
            raise
        return self._thread.submit(self._finish_there, result, tx)

    def _finish_there(self, result: T, tx: WriteTransaction) -> tuple[T, set[str]]:
        try:
            return self._finish(result, tx)
        finally:
            self._gate.leave()

    def _wait_and_transact(self, work: Callable[[WriteTransaction], T]) -> tuple[T, set[str]]:
        began = self._clock.boot()
        self._gate.enter()
        try:
            return self._transact(work, busy_timeout=BUSY_TIMEOUT_MS, waiting_since=began)
        finally:
            self._gate.leave()

    # A conversation

    async def transact(
        self, talk: Callable[[Execute, Write[Any]], Awaitable[Callable[[WriteTransaction], T]]]
    ) -> tuple[T, set[str]]:
        """Open a transaction for ``talk``, then do what it returned, and commit; return that result and the hints.

        However this ends, the transaction ends with it. The turn is over when that is done, not when the caller is: as
        each part is done after the one before, what a cancelled caller leaves under way is rolled back behind it.
        """
        await self._turn.acquire()
        try:
            self._check_open()
            await self._submit(self._open)
            work = await talk(self._execute, self._write_within)
            self._check_open()
        except BaseException:
            if self._closed:
                self._turn.release()  # the connection is closed, which rolled it back
            else:
                self._submit(self._abandon).add_done_callback(self._end_turn)
            raise
        answer = self._submit(lambda: self._close_with(work))
        answer.add_done_callback(self._end_turn)
        return await asyncio.shield(answer)

    def _submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Have something done on the connection: in the thread, or here where it has to stay."""
        self._check_open()
        if not self._always_inline:
            return asyncio.wrap_future(self._thread.submit(function))
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(function())
        except Exception as error:  # noqa: BLE001 - it belongs to the caller that waits for the answer
            done.set_exception(error)
        return done

    def _execute(
        self, sql: str, parameters: tuple[Any, ...] | dict[str, Any], give_up: Callable[[], bool]
    ) -> Awaitable[list[tuple[Any, ...]]]:
        guard = self._guard
        assert guard is not None  # noqa: S101 - made when the conversation was opened
        return self._submit(lambda: guard.run(sql, parameters, give_up))

    def _write_within(self, work: Callable[[WriteTransaction], T]) -> Awaitable[tuple[T, set[str]]]:
        return self._submit(lambda: self._write_here(work))

    def _write_here(self, work: Callable[[WriteTransaction], T]) -> tuple[T, set[str]]:
        """Do this in the open conversation. If it raises, nothing of it stays, and the conversation goes on."""
        connection = self._connection
        connection.execute(f"SAVEPOINT {_WITHIN}")
        tx = self._transaction(self._clock.boot())
        try:
            result = self._work(tx, work)
        except BaseException:
            if connection.in_transaction:  # otherwise SQLite has ended all of it: the disk is full
                connection.execute(f"ROLLBACK TO {_WITHIN}")
                connection.execute(f"RELEASE {_WITHIN}")
            raise
        connection.execute(f"RELEASE {_WITHIN}")
        return result, tx.hints

    def _open(self) -> None:
        began = self._clock.boot()
        self._gate.enter()
        try:
            with translated(self._path):
                self._begin(busy_timeout=BUSY_TIMEOUT_MS, waiting_since=began)
        except BaseException:
            self._gate.leave()
            raise
        self._open_since = self._clock.boot()
        if self._guard is None:
            self._guard = StatementGuard(self._connection)

    def _close_with(self, work: Callable[[WriteTransaction], T]) -> tuple[T, set[str]]:
        try:
            tx = self._transaction(self._clock.boot())  # as of now: it may have been open for a while
            return self._finish(self._work(tx, work), tx)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """End what is still open. Leaving the gate is harmless to who never got in."""
        try:
            self._roll_back()
        finally:
            self._gate.leave()
            now, since, self._open_since = self._clock.boot(), self._open_since, None
            if since is not None and now - since > LONG_WAIT:
                self.stalled_until = now

    # One transaction, in three acts

    def _transact(
        self, work: Callable[[WriteTransaction], T], *, busy_timeout: int = 0, waiting_since: float | None = None
    ) -> tuple[T, set[str]]:
        tx = self._begin(busy_timeout=busy_timeout, waiting_since=waiting_since)
        try:
            result = self._work(tx, work)
        except BaseException:
            self._roll_back()
            raise
        return self._finish(result, tx)

    def _begin(self, *, busy_timeout: int, waiting_since: float | None = None) -> WriteTransaction:
        connection = self._connection
        connection.set_busy_timeout(busy_timeout)
        connection.execute("BEGIN IMMEDIATE")
        boot = self._clock.boot()
        try:
            self._check_place()
        except BaseException:
            self._roll_back()
            raise
        self._changes = connection.total_changes()
        for since in (waiting_since, self._failing_since):
            if since is not None and boot - since > LONG_WAIT:
                self.stalled_until = boot
        return self._transaction(boot)

    def _transaction(self, boot: float) -> WriteTransaction:
        """Return the open transaction as the verbs see it; ``boot`` is now, on the boot clock."""
        now = micros(self._clock.now())
        stalled = None if self.stalled_until is None else round(self.stalled_until * 1_000_000)
        return WriteTransaction(
            self._connection,
            now=now,
            boot=round(boot * 1_000_000),
            boot_id=self._clock.boot_id,
            stalled_until=stalled,
        )

    def _work(self, tx: WriteTransaction, work: Callable[[WriteTransaction], T]) -> T:
        try:
            result = work(tx)
        except Exception as error:  # noqa: BLE001 - raised again, in our words if it is SQLite's
            self._explain(error)
        # SQLite ends the transaction itself on some errors (disk full, interrupt); a statement after that would commit
        # alone.
        if not self._connection.in_transaction:
            raise StoreError(f"{self._path}: SQLite ended the transaction; nothing was written, try again")
        return result

    def _finish(self, result: T, tx: WriteTransaction) -> tuple[T, set[str]]:
        try:
            self._commit_in_epoch(tx)
        except Exception as error:  # noqa: BLE001 - see above
            self._explain(error)
        finally:
            self._roll_back()
        self._failing_since = None
        if self._wal_pages >= self._checkpoint_at:
            with suppress(OSError, apsw.Error):  # the commit is durable: what fails from here on is for the next one
                self._copy_wal()
        return result, tx.hints

    def _commit_in_epoch(self, tx: WriteTransaction) -> None:
        place = self._place
        if not isinstance(place, FilePlace) or self._connection.total_changes() == self._changes:
            self._commit(self._connection)
            return
        now = self._clock.boot()
        place.before_commit(now)
        self._commit(self._connection)
        place.after_commit(now, tx.last_task)

    def _explain(self, error: Exception) -> NoReturn:
        """Raise an error of SQLite in our words, and any other as it is."""
        ours = in_our_words(self._path, error)
        if self._failing_since is None and isinstance(ours or error, StoreUnavailable | ReadOnlyStore):
            self._failing_since = self._clock.boot()  # nothing can be written, so no lease can be renewed
        if ours is None:
            raise error
        raise ours from error

    def _roll_back(self) -> None:
        """End a transaction that is still open; one that was committed is not."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    # The WAL

    def _note_wal(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Called by SQLite after each commit that wrote something, with the pages that the WAL has now."""
        del connection, name
        self._has_written = True
        if pages < self._wal_pages:  # it began again
            self._checkpoint_at = _CHECKPOINT_PAGES
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _copy_wal(self) -> None:
        """Copy the pages of the WAL into the file, in the file's next epoch.

        Overlapping readers may keep the WAL from beginning again. When it is long, the writer waits for them.
        """
        self._checkpoint_at = self._wal_pages + _CHECKPOINT_AGAIN
        raise_epoch(self._connection)
        is_long = self._wal_pages > _LONG_WAL_PAGES
        self._connection.set_busy_timeout(100 if is_long else 0)
        self._connection.wal_checkpoint(
            mode=apsw.SQLITE_CHECKPOINT_RESTART if is_long else apsw.SQLITE_CHECKPOINT_PASSIVE
        )

    # The place

    def check_place(self) -> None:
        """Raise StoreReplaced if other files stand at the paths than those that are open. Any thread may ask."""
        self._place.check()

    def _check_place(self) -> None:
        if isinstance(self._place, FilePlace):
            self._place.check_content()
        else:
            self._place.check()

    def foreign_version(self) -> int | None:
        """Return a number that changes when another connection commits; None while the connection is in use."""
        return None if self._turn.locked() else int(self._connection.execute("PRAGMA data_version").get)

    def release_in_child(self) -> None:
        """Never touch the connection again: this is a forked child, and it is the parent's."""
        self._closed = True
        self._connection = keep(self._connection)
        if isinstance(self._place, FilePlace):
            self._place.release_in_child()

    def close(self) -> None:
        """Finish what is under way, then let go of thread, connection and gate."""
        self._closed = True
        self._thread.shutdown(wait=True)
        with ExitStack() as closing_all:
            closing_all.callback(self._gate.close)
            closing_all.callback(self._connection.close)
            if isinstance(self._place, FilePlace):
                closing_all.callback(self._place.close)
                self._leave(self._place)

    def _leave(self, place: FilePlace) -> None:
        """Have the last connection copy the WAL into the file as it closes, unless the file is another store's now."""
        try:
            place.check_content()
            if self._has_written and self._gate.try_enter():
                try:
                    self._connection.set_busy_timeout(0)
                    with suppress(apsw.Error):  # another process writes: it is not the last, and this was not, either
                        raise_epoch(self._connection)
                finally:
                    self._gate.leave()
        except (StoreError, OSError, apsw.Error):
            if not place.lacks_only_its_wal:
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
