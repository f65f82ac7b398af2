"""MemoryStore: the contract for tests and experiments; everything is gone with the process.

It is SQLite without a file, so that what a test proves in memory holds for the same code on disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Self

import apsw

from holdfast.model.clock import Clock
from holdfast.model.queries import Vitals
from holdfast.model.records import Artifact
from holdfast.process_fork import watch
from holdfast.store.base import Capabilities
from holdfast.store.place import Nowhere, Place
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.gate import OpenGate
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.queries import Reader
from holdfast.store.sqlite.writer import Writer, plain_commit


class MemoryStore(SqliteStore):
    """Tasks in memory, for one process."""

    capabilities = Capabilities(
        durable=False, multi_process=False, multi_machine=False, precise_hints=True, transactions=True
    )

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Start empty; closing forgets everything."""
        super().__init__(":memory:", clock=clock)

    async def open(self) -> Self:
        """See StateStore."""
        self._check_not_open()
        connection = connect(":memory:", durable=False)
        try:
            self._fill(connection)
        except BaseException:
            connection.close()
            raise
        # One connection does everything, for an in-memory database belongs to its connection; all in the loop's thread.
        self._writer = Writer(
            connection,
            ":memory:",
            OpenGate(),
            self._clock,
            commit=self._commit,
            always_inline=True,
            place=self._find_place(),
        )
        self._reader = Reader(connection)
        watch(self)
        return self

    def _fill(self, connection: apsw.Connection) -> None:
        """Make the tables, and load what an earlier process left: nothing, for memory."""
        migrate(connection, self.path)

    def _find_place(self) -> Place:
        return Nowhere()

    def _commit(self, connection: apsw.Connection) -> None:
        plain_commit(connection)

    async def vitals(self, *, thorough: bool = False) -> Vitals:
        """See Reads."""
        return await self._read(lambda reader: reader.vitals("memory", thorough=thorough))

    async def _put_stream(self, pieces: AsyncIterator[bytes], media_type: str) -> Artifact:
        # It will be in memory in any case; and whoever writes files writes each of them once.
        return await self._put_whole(b"".join([piece async for piece in pieces]), media_type)
