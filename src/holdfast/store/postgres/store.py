"""PostgresStore: opening and closing, time, and hints. The verbs are in the modules it is made of."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Self

import psycopg

from holdfast.model.clock import Clock
from holdfast.model.errors import InvalidValue, NotAStore, StoreError
from holdfast.redaction import know, know_url
from holdfast.store.base import Capabilities, Listener
from holdfast.store.postgres.connections import APPLICATION, Connection, Connections, fetch_on, unreachable
from holdfast.store.postgres.errors import is_lost, place, translate
from holdfast.store.postgres.memory import Remembering
from holdfast.store.postgres.migration import prepare
from holdfast.store.postgres.notices import Notices
from holdfast.store.postgres.queries import Reading
from holdfast.store.postgres.retention import Keeping
from holdfast.store.postgres.user_transaction import Transacting
from holdfast.store.postgres.verbs import Working
from holdfast.store.postgres.vitals import Looking
from holdfast.store.url import split_options

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class PostgresStore(Working, Transacting, Remembering, Reading, Looking, Keeping):
    """Tasks in a PostgreSQL database that any number of machines share.

    ``schema`` holds all tables and functions; several stores can live in one database. ``migrate``: see
    ``migrating.prepare``. ``prepare``: whether statements are prepared; None, the default, prepares them unless a
    pooler stands before the server. ``listen_url`` names the server directly where ``url`` leads to a pooler in
    transaction mode, which has no LISTEN. Both can also stand in the URL: ``?prepare=false&listen_url=...``.
    ``application_name`` is what the server shows of our connections, unless the URL or PGAPPNAME says otherwise.
    ``retry_for`` is how many seconds a verb keeps trying while the database is away.
    """

    capabilities = Capabilities(
        durable=True, multi_process=True, multi_machine=True, precise_hints=True, transactions=True
    )

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        clock: Clock | None = None,
        migrate: bool | None = None,
        pool_size: int = 4,
        prepare: bool | None = None,
        listen_url: str | None = None,
        application_name: str = APPLICATION,
        retry_for: float = 10.0,
    ) -> None:
        """Check the settings; ``open`` connects."""
        if not _SCHEMA_NAME.fullmatch(schema):
            raise InvalidValue(f"schema {schema!r} should be a short name of lower-case letters, digits and _")
        if pool_size < 1:
            raise InvalidValue(f"pool_size is {pool_size}; at least one connection is needed")
        know_url(url)
        know_url(listen_url)
        know(os.environ.get("PGPASSWORD"))  # libpq reads it by itself
        url, written = split_options(url)
        super().__init__(url, schema=schema, clock=clock)
        self._url = url
        self._migrate = migrate
        self._pool_size = pool_size
        self._prepare = written.prepare if prepare is None else prepare
        # Of the listener's own, the server's address counts and nothing else.
        self._listen_url = split_options(listen_url or written.listen_url or url)[0]
        place(self._listen_url)  # refuses what cannot be read
        self._application = application_name
        self._retry_for = retry_for

    async def open(self) -> Self:
        """See StateStore. Raises StoreUnavailable at once if there is no server: a typing error should not wait."""
        if self._connections is not None:
            self._connections.owner.check()
            raise StoreError(f"the store in {self._where} is open already; use this one, or close it first")
        connections = self._make_connections()
        try:
            connection = await connections.connect(prepare=False)
        except psycopg.Error as error:
            raise unreachable(error, self._where) from error
        try:
            [(encoding,)] = await fetch_on(connection, "SELECT current_setting('server_encoding')")
            if encoding != "UTF8":
                raise NotAStore(f"{self._where} is encoded in {encoding}; create a database with ENCODING 'UTF8'")
            await prepare(connection, self._schema, migrate=self._migrate, where=self._where)
        except psycopg.Error as error:
            raise unreachable(error, self._where) if is_lost(error) else translate(error, self._where) from error
        finally:
            await connection.close()
        # Users' transactions go without prepared statements: one that a pooler has lost would end the transaction.
        self._connections, self._lendable = connections, self._make_connections("transactions", prepare=False)
        self._newest_seen, self._outdated = 0, None
        self._notices = Notices(f"{self._schema}_hints", send=self._notify, connect=self._connect_listener)
        return self

    async def close(self) -> None:
        """See StateStore."""
        if self._connections is None or self._connections.owner.is_other:  # the parent's, in a forked child
            return
        try:
            if self._notices is not None:
                await self._notices.close()
        finally:  # also if whoever closes does not wait for the last hints
            pools = self._connections, self._lendable
            self._connections = self._lendable = self._notices = None
            for pool in pools:
                if pool is not None:
                    await pool.close()

    def _make_connections(self, use: str | None = None, *, prepare: bool | None = None) -> Connections:
        return Connections(
            self._url,
            size=self._pool_size,
            prepare=self._prepare if prepare is None else prepare,
            retry_for=self._retry_for,
            application=self._name_of(use),
            outage=self.outage,
        )

    def _name_of(self, use: str | None) -> str:
        """Return the application_name of the connections for a use."""
        return f"{self._application} ({use})" if use else self._application

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Listener]:
        """See StateStore."""
        self._open_connections()
        if self._notices is not None:
            async with self._notices.listening() as listener:
                yield listener

    async def now(self) -> datetime:
        """See StateStore: the database's clock, or a test's."""
        [row] = await self._fetch("now", self._at())
        moment: datetime = row[0]
        return moment

    async def _notify(self, channel: str, payload: str) -> None:
        await self._fetch("notify", channel, payload, repeatable=False)

    async def _connect_listener(self) -> Connection:
        name = self._name_of("listen")
        return await Connections(self._listen_url, size=1, prepare=False, retry_for=0, application=name).connect()
