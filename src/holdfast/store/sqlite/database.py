"""Database: the connections of one SQLite store, and the ways in which a verb uses them.

Never open the file with Python's own ``sqlite3`` in the same process: closing it drops every POSIX lock apsw holds,
and another process can then overwrite what a COMMIT has acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import datetime
from functools import wraps
from os import getpid
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import apsw

from holdfast.model.clock import Clock
from holdfast.model.errors import StoreBusy, StoreClosed, StoreError
from holdfast.process_fork import watch
from holdfast.store.backend import Listener
from holdfast.store.base import ANYTHING
from holdfast.store.clock import SystemClock
from holdfast.store.handles import TooManyOpenFiles
from holdfast.store.hints import LocalHints
from holdfast.store.outage import Outage
from holdfast.store.privacy import create_file
from holdfast.store.sqlite.connection import BUSY_TIMEOUT_MS, check_path, connect
from holdfast.store.sqlite.errors import in_our_words, translated
from holdfast.store.sqlite.gate import Gate, file_gate
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.place import FilePlace, look_before
from holdfast.store.sqlite.probe import ChangeProbe
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.store.sqlite.writer import MOST_HERE, SqliteWriter

T = TypeVar("T")
P = ParamSpec("P")

_OPEN_AGAIN = (0.01, 0.05)
"""Seconds until a file that others are opening is tried again: at least, and at most."""

LOOK_EVERY = 1.0
"""Seconds after which a read also sees whether the store is still where it was opened; every write does."""

MANY = MOST_HERE + 1
"""Items of a write that may be long: it does not run on the event loop."""

YIELD_EVERY = 0.002
"""Seconds of inline work after which the event loop gets a turn."""


class Database:
    """One SQLite file: a writer, a reader for quick questions, and a reader with a thread for slow ones."""

    def __init__(self, path: str | Path, *, clock: Clock | None = None, durable: bool = True) -> None:
        """Name the file; ``open`` creates it where it is missing."""
        self.path = str(path)
        self.file = str(Path(path).absolute())  # the working directory may change
        self.clock = clock or SystemClock()
        self.outage = Outage()
        self.writer: SqliteWriter | None = None
        self.reader: Reader | None = None
        self.slow_reader: Reader | None = None
        self.probe: ChangeProbe | None = None
        self._durable = durable
        self._hints = LocalHints()
        self._slow_thread: ThreadPoolExecutor | None = None
        self._yielded = self._looked = time.monotonic()

    async def open(self) -> None:
        """See StateStore. SQLite files migrate when they are opened."""
        self.check_not_open()
        check_path(Path(self.file))
        connections, place, gate = await self._open_patiently()
        self.reader, self.slow_reader = (Reader(connection, self.clock) for connection in connections[1:])
        self._slow_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-reader")
        self.writer = SqliteWriter(connections[0], self.file, gate, self.clock, place=place)
        self.probe = ChangeProbe(self.writer.foreign_version, self._hints)
        watch(self)

    async def _open_patiently(self) -> tuple[list[apsw.Connection], FilePlace, Gate]:
        """Open the file, and wait while others open it or this process has no file handle left, as for any lock.

        SQLite's own busy timeout does not cover all of opening: of many processes that make a new file into a store at
        once, it refuses some at once, because two of them could wait for each other.
        """
        give_up_at = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                with translated(self.path):
                    return self._open_files()
            except (StoreBusy, TooManyOpenFiles):
                if time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(random.uniform(*_OPEN_AGAIN))  # noqa: S311 - no secret, only not all at once

    def _open_files(self) -> tuple[list[apsw.Connection], FilePlace, Gate]:
        with ExitStack() as opened:
            create_file(self.file)
            before = look_before(self.file)
            connections = [opened.enter_context(closing(self.connect())) for _ in range(3)]
            migrate(connections[0], self.path)
            place = opened.enter_context(closing(FilePlace(self.file, connections, before)))
            if not place.is_certain:
                raise StoreBusy(f"{self.path} was replaced as it was opened; try again")
            gate = file_gate(self.file)
            opened.pop_all()  # from here on close() looks after them
        return connections, place, gate

    def check_not_open(self) -> None:
        """Refuse to open twice."""
        if self.writer is not None:
            self.writer.owner.check()
            raise StoreError(f"{self.path} is open already; use this store, or close it first")

    def connect(self) -> apsw.Connection:
        """Open one more connection to the file."""
        return connect(self.file, durable=self._durable)

    async def close(self) -> None:
        """See StateStore."""
        writer = self.writer
        if writer is None or writer.owner.is_other:  # what is the parent's, a forked child must not close
            return
        self.writer = None
        with ExitStack() as closing_all:  # from the last line to the first, whatever one of them raises
            closing_all.callback(self._hints.publish, {ANYTHING})  # a listener that is still there finds out by asking
            closing_all.callback(writer.close)
            for reader in (self.reader, self.slow_reader):
                if reader is not None:
                    closing_all.callback(reader.close)
            if self._slow_thread is not None:
                closing_all.callback(self._slow_thread.shutdown)
            if self.probe is not None:
                await self.probe.close()

    def open_writer(self) -> SqliteWriter:
        """Return the writer; StoreClosed unless the store is open."""
        if self.writer is None:
            raise StoreClosed(f"the store {self.path} is not open; use it inside `async with store:`")
        if self.writer.owner.pid != getpid():
            self.writer.owner.check()
        return self.writer

    def release_in_child(self) -> None:
        """Leave the connections to the parent, in a forked child; see inherited.py."""
        for holder in (self.writer, self.reader, self.slow_reader):
            if holder is not None:
                holder.release_in_child()

    async def write(self, work: Callable[[WriteTransaction], T], *, items: int = 1) -> T:
        """Do this in a transaction, and publish its hints; ``items`` says how much work it is."""
        writer = self.open_writer()
        try:
            result, hints = await writer.write(work, items=items)
        except Exception as error:  # noqa: BLE001 - raised again, in our words if it is SQLite's
            self._explain(error)
        if hints:
            self._hints.publish(hints)
        await self._yield_to_others()
        return result

    async def read(self, question: Callable[[Reader], T]) -> T:
        """Answer from the loop's own thread: for questions that read a few rows by key."""
        writer = self.open_writer()
        while writer.apart is not None:
            await asyncio.wait([writer.apart])
        assert self.reader is not None  # noqa: S101 - open() makes both
        try:
            answer = question(self.reader)
        except Exception as error:  # noqa: BLE001 - see above
            self._explain(error)
        await self._yield_to_others()
        return answer

    async def read_slowly(self, question: Callable[[Reader], T]) -> T:
        """Answer from a thread: for questions that may look at very many rows."""
        self.open_writer()
        if self.slow_reader is None or self._slow_thread is None:
            return await self.read(question)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._slow_thread, question, self.slow_reader)
        except Exception as error:  # noqa: BLE001 - see above
            self._explain(error)

    def check_place(self) -> None:
        """See StateStore."""
        self.open_writer().check_place()

    async def read_apart(self, question: Callable[[Reader], T]) -> T:
        """Answer from a thread also where one connection does everything: this is known to take long."""
        writer, reader = self.open_writer(), self.reader
        if reader is None or self.slow_reader is not None:
            return await self.read_slowly(question)
        try:
            return await writer.work_apart(lambda: question(reader))
        except Exception as error:  # noqa: BLE001 - see above
            self._explain(error)

    def _explain(self, error: Exception) -> NoReturn:
        """Raise an error of SQLite in our words, and any other as it is."""
        ours = in_our_words(self.path, error)
        if ours is None:
            raise error
        raise ours from error

    async def _yield_to_others(self) -> None:
        """Yield now and then: a loop of calls that all run inline would starve heartbeats and timeouts."""
        now = time.monotonic()
        if now - self._looked > LOOK_EVERY:
            self._looked = now
            if self.writer is not None:
                self.writer.check_place()
        if now - self._yielded > YIELD_EVERY:
            await asyncio.sleep(0)
            self._yielded = time.monotonic()

    def publish(self, hints: set[str]) -> None:
        """Notify the listeners in this process."""
        self._hints.publish(hints)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Listener]:
        """See StateStore."""
        self.open_writer()
        async with self._hints.listening() as listener:
            if self.probe is not None:
                self.probe.wake()
            yield listener

    async def now(self) -> datetime:
        """See StateStore."""
        if self.writer is not None:
            self.writer.owner.check()
        return self.clock.now()


Verb = Callable[Concatenate[Database, P], Coroutine[Any, Any, T]]


def quickly(question: Callable[Concatenate[Reader, P], T]) -> Verb[P, T]:
    """Make a verb of a question that reads a few rows by key: it is answered on the loop's own thread."""

    @wraps(question)
    async def ask(db: Database, /, *args: P.args, **options: P.kwargs) -> T:
        return await db.read(lambda reader: question(reader, *args, **options))

    return ask


def slowly(question: Callable[Concatenate[Reader, P], T]) -> Verb[P, T]:
    """Make a verb of a question that may look at very many rows: it is answered from a thread."""

    @wraps(question)
    async def ask(db: Database, /, *args: P.args, **options: P.kwargs) -> T:
        return await db.read_slowly(lambda reader: question(reader, *args, **options))

    return ask


def written(
    work: Callable[Concatenate[WriteTransaction, P], T], *, items: Callable[P, int] = lambda *_, **__: 1
) -> Verb[P, T]:
    """Make a verb of what is done in one write transaction; ``items`` says how much work it is."""

    @wraps(work)
    async def write(db: Database, /, *args: P.args, **options: P.kwargs) -> T:
        return await db.write(lambda tx: work(tx, *args, **options), items=items(*args, **options))

    return write
