"""Database: the connections of one PostgreSQL store, its named queries, its clock and its hints."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import starmap
from os import getpid
from typing import TypeVar

import psycopg

from holdfast.model.clock import Clock
from holdfast.model.errors import InvalidValue, NotAStore, StoreClosed, StoreError
from holdfast.redaction import know, know_url
from holdfast.store.backend import Listener
from holdfast.store.clock import SystemClock
from holdfast.store.outage import Outage
from holdfast.store.postgres.connections import APPLICATION, Connections, PostgresConnection, Row, fetch_on, unreachable
from holdfast.store.postgres.errors import is_lost, place, translate
from holdfast.store.postgres.migration import prepare
from holdfast.store.postgres.notices import Notices
from holdfast.store.postgres.sql import QUERIES
from holdfast.store.url import split_options

T = TypeVar("T")

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class Database:
    """One schema in a PostgreSQL database. PostgresStore explains the settings."""

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
        """Check the settings and prepare the queries for this schema; ``open`` connects."""
        if not _SCHEMA_NAME.fullmatch(schema):
            raise InvalidValue(f"schema {schema!r} should be a short name of lower-case letters, digits and _")
        if pool_size < 1:
            raise InvalidValue(f"pool_size is {pool_size}; at least one connection is needed")
        know_url(url)
        know_url(listen_url)
        know(os.environ.get("PGPASSWORD"))  # libpq reads it by itself
        url, written = split_options(url)
        self.where = place(url)
        self.queries = {name: sql.replace("{schema}", f'"{schema}"') for name, sql in QUERIES.items()}
        self.outage = Outage()
        self.connections: Connections | None = None
        self.lendable: Connections | None = None
        """Apart from the others: however many transactions users hold open, no heartbeat waits for one."""
        self.notices: Notices | None = None
        self.newest_seen = 0
        """The version of the schema at the last heartbeat that found it newer than this program."""
        self.outdated: str | None = None
        """Why this program may claim nothing more, once a newer one has migrated the schema."""
        self.prunes_feed_at = 0.0
        """When, on the monotonic clock, a sweep of this process next looks whether the feed is too old."""
        self._schema = schema
        self._clock = None if clock is None or isinstance(clock, SystemClock) else clock
        self._url = url
        self._migrate = migrate
        self._pool_size = pool_size
        self._prepare = written.prepare if prepare is None else prepare
        # Of the listener's own, the server's address counts and nothing else.
        self._listen_url = split_options(listen_url or written.listen_url or url)[0]
        place(self._listen_url)  # refuses what cannot be read
        self._application = application_name
        self._retry_for = retry_for

    # Opening and closing

    async def open(self) -> None:
        """See StateStore. Raises StoreUnavailable at once if there is no server: a typing error should not wait."""
        if self.connections is not None:
            self.connections.owner.check()
            raise StoreError(f"the store in {self.where} is open already; use this one, or close it first")
        connections = self._make_connections()
        try:
            connection = await connections.connect(prepare=False)
        except psycopg.Error as error:
            raise unreachable(error, self.where) from error
        try:
            [(encoding,)] = await fetch_on(connection, "SELECT current_setting('server_encoding')")
            if encoding != "UTF8":
                raise NotAStore(f"{self.where} is encoded in {encoding}; create a database with ENCODING 'UTF8'")
            await prepare(connection, self._schema, migrate=self._migrate, where=self.where)
        except psycopg.Error as error:
            raise unreachable(error, self.where) if is_lost(error) else translate(error, self.where) from error
        finally:
            await connection.close()
        # Users' transactions go without prepared statements: one that a pooler has lost would end the transaction.
        self.connections, self.lendable = connections, self._make_connections("transactions", prepare=False)
        self.newest_seen, self.outdated = 0, None
        self.notices = Notices(f"{self._schema}_hints", send=self._notify, connect=self.connect_listener)

    async def close(self) -> None:
        """See StateStore."""
        if self.connections is None or self.connections.owner.is_other:  # the parent's, in a forked child
            return
        try:
            if self.notices is not None:
                await self.notices.close()
        finally:  # also if the caller that closes does not wait for the last hints
            pools = self.connections, self.lendable
            self.connections = self.lendable = self.notices = None
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

    def open_connections(self) -> Connections:
        """Return the connections; StoreClosed unless the store is open."""
        if self.connections is None:
            raise StoreClosed(f"the store in {self.where} is not open; use it inside `async with store:`")
        if self.connections.owner.pid != getpid():
            self.connections.owner.check()
        return self.connections

    # Time

    def at(self) -> datetime | None:
        """Return the time of a test's clock; None lets the database take its own."""
        return None if self._clock is None else self._clock.now()

    async def now(self) -> datetime:
        """See StateStore: the database's clock, or a test's."""
        [(moment,)] = await self.fetch("now", self.at())
        return moment  # type: ignore[no-any-return]

    # Queries

    async def fetch(self, query: str, *values: object, repeatable: bool = True) -> list[Row]:
        """Run a named query and return its rows."""
        return await self.fetch_with_new_values(query, lambda: values, repeatable=repeatable)

    async def fetch_with_new_values(
        self, query: str, values: Callable[[], Sequence[object]], *, repeatable: bool = True
    ) -> list[Row]:
        """Run a named query with values that are asked for before each try; return its rows."""
        connections = self.open_connections()
        try:
            return await connections.fetch(self.queries[query], values, repeatable=repeatable)
        except psycopg.Error as error:
            raise translate(error, self.where) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise InvalidValue(f"a value that {self.where} cannot hold: {error}; nothing was written") from error

    async def all(self, make: Callable[..., T], query: str, *values: object) -> list[T]:
        """Run a named query; make a record of each row, whose columns are the parameters of ``make``."""
        return list(starmap(make, await self.fetch(query, *values)))

    async def first(self, make: Callable[..., T], query: str, *values: object) -> T | None:
        """Run a named query; make a record of its first row, if there is one."""
        found = await self.fetch(query, *values)
        return make(*found[0]) if found else None

    async def select(self, make: Callable[..., T], listing: tuple[str, list[object]]) -> list[T]:
        """Run a statement of listings.py; make a record of each row."""
        sql, values = listing
        try:
            rows = await self.open_connections().fetch(sql.replace("{schema}", f'"{self._schema}"'), values)
        except psycopg.Error as error:
            raise translate(error, self.where) from error
        return list(starmap(make, rows))

    # Hints

    def publish(self, topics: Iterable[str]) -> None:
        """Notify the listeners, in this process and in others."""
        if self.notices is not None:
            self.notices.publish(topics)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Listener]:
        """See StateStore."""
        self.open_connections()
        if self.notices is not None:
            async with self.notices.listening() as listener:
                yield listener

    async def _notify(self, channel: str, payload: str) -> None:
        await self.fetch("notify", channel, payload, repeatable=False)

    async def connect_listener(self) -> PostgresConnection:
        """Open the connection on which hints arrive."""
        name = self._name_of("listen")
        return await Connections(self._listen_url, size=1, prepare=False, retry_for=0, application=name).connect()
