"""MemoryStore: the contract for tests and experiments; everything is gone with the process.

It is SQLite without a file, so that what a test proves in memory holds for the same code on disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import apsw

from holdfast.model.clock import Clock
from holdfast.model.queries import Vitals
from holdfast.model.records import Artifact
from holdfast.process_fork import watch
from holdfast.store.base import Capabilities
from holdfast.store.place import Nowhere, StorePlace
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite import queries
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.empty import copy_empty
from holdfast.store.sqlite.gate import OpenGate
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.store import SqliteBackend
from holdfast.store.sqlite.writer import SqliteWriter, plain_commit


class MemoryBackend(SqliteBackend):
    """The verbs on a SQLite database that is one connection, in the loop's thread."""

    def __init__(self, path: str = ":memory:", *, clock: Clock | None = None) -> None:
        """Start empty; ``path`` is what messages call it."""
        super().__init__(path, clock=clock)

    async def open(self) -> None:
        """See StateStore."""
        self.check_not_open()
        connection = connect(":memory:", durable=False)
        try:
            self.fill(connection)
        except BaseException:
            connection.close()
            raise
        # One connection does everything, for an in-memory database belongs to its connection; all in the loop's thread.
        self.writer = SqliteWriter(
            connection,
            ":memory:",
            OpenGate(),
            self.clock,
            commit=self.finish,
            always_inline=True,
            place=self.find_place(),
        )
        self.reader = Reader(connection, self.clock)
        watch(self)

    def fill(self, connection: apsw.Connection) -> None:
        """Make the tables, and load what an earlier process left: nothing, for memory."""
        copy_empty(connection, self.path)

    def find_place(self) -> StorePlace:
        """Return what has to stay where it is."""
        return Nowhere()

    def finish(self, connection: apsw.Connection) -> None:
        """Commit a transaction."""
        plain_commit(connection)

    async def vitals(self, *, thorough: bool) -> Vitals:
        """See ReadVerbs."""
        return await self.read(lambda reader: queries.vitals(reader, "memory", file=None, thorough=thorough))

    async def put_stream(self, pieces: AsyncIterator[bytes], media_type: str) -> Artifact:
        """See Uploads. It will be in memory in any case; and a store of files writes each of them once."""
        return await self.put_whole(b"".join([piece async for piece in pieces]), media_type)


class MemoryStore(SimpleInterface):
    """Tasks in memory, for one process."""

    capabilities = Capabilities(
        durable=False, multi_process=False, multi_machine=False, precise_hints=True, transactions=True
    )
    _backend: MemoryBackend

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Start empty; closing forgets everything."""
        self.path = ":memory:"
        super().__init__(MemoryBackend(clock=clock))
