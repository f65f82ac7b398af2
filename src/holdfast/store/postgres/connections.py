"""A small pool of connections, and sending again what was lost on the way."""

from __future__ import annotations

import asyncio
import random
import secrets
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import Format, TransactionStatus
from psycopg.pq.abc import PGconn

from holdfast.model.errors import ReadOnlyStore, StoreUnavailable
from holdfast.process_fork import Owner, blank, watch
from holdfast.redaction import make_logger
from holdfast.store.outage import Outage
from holdfast.store.postgres import parameters
from holdfast.store.postgres.errors import (
    is_damage,
    is_lost,
    is_unprepared,
    leaves_usable,
    place,
    translate,
    was_undone,
)

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
PostgresConnection: TypeAlias = psycopg.AsyncConnection[Row]

CONNECT_TIMEOUT = 10
APPLICATION = "holdfast"
"""What the server shows as the application_name of a connection, unless the user chose another."""

LONG_WAIT = 1.0
"""Seconds after which a statement that is sent again and again counts as an outage, and no longer as a lost race."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_microseconds = struct.Struct("!q").unpack
_log = make_logger(__name__)

_REQUIRED_SETTINGS = {
    # Under a stricter level, all statements of a function share one snapshot: "lock first, read later" would not hold.
    "default_transaction_isolation": dict.fromkeys(("repeatable read", "serializable"), "read committed"),
    # What was acknowledged is durable.
    "synchronous_commit": {"off": "on"},
    # psycopg's text arrays are escaped for the standard.
    "standard_conforming_strings": {"off": "on"},
}
"""Session settings, and what to set where one has a value that breaks a promise."""


class _UtcLoader(Loader):
    """Read a timestamptz as a time in UTC, whatever the time zone of the session.

    For a time that Python cannot express, such as infinity, it is the first or last possible time. Only an
    edited row has such a time. It must not prevent the rows beside it from being read.
    """

    format = Format.BINARY

    def load(self, data: Buffer) -> datetime:
        (since_epoch,) = _microseconds(data)
        try:
            return _EPOCH + timedelta(0, 0, since_epoch)
        except OverflowError:
            return _LAST if since_epoch > 0 else _FIRST


_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_loader("timestamptz", _UtcLoader)
parameters.register(_ADAPTERS)


class _OwnConnection(psycopg.AsyncConnection[Row]):
    """A connection that a forked child of this process cannot disturb."""

    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn)
        self._owner = Owner("a connection to PostgreSQL")
        watch(self)

    def release_in_child(self) -> None:
        """Take the socket away from the child: it must not say a word to the server, nor keep the session alive."""
        with suppress(psycopg.Error):  # lost before: there is none
            blank(self.pgconn.socket)

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Cancel what the server does: not from a child, whose loop may end what only its parent waits for."""
        if not self._owner.is_other:
            await super().cancel_safe(timeout=timeout)

    def __del__(self, *warn: Any) -> None:  # noqa: ANN401 - the driver's own
        if not (hasattr(self, "_owner") and self._owner.is_other):  # a child need not close it
            super().__del__(*warn)


class Connections:
    """Up to ``size`` connections to one database, opened when they are needed, the last one used first."""

    def __init__(
        self,
        url: str,
        *,
        size: int,
        prepare: bool | None,
        retry_for: float,
        application: str = APPLICATION,
        outage: Outage | None = None,
    ) -> None:
        """``retry_for`` is how many seconds a verb keeps trying while the database is away.

        ``prepare``: use prepared statements; None, unless a pooler stands between us and the server.
        """
        self.url = url
        self.where = place(url)
        self.owner = Owner(f"the store in {self.where}")
        self._prepare = prepare
        self._retry_for = retry_for
        self._outage = outage or Outage()
        self._last_outage = time.monotonic()  # there may have been one until just now, and this process is new
        self._application = application
        self._free = asyncio.Semaphore(size)
        self._idle: list[PostgresConnection] = []
        self._closed = False

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    async def connect(self, *, prepare: bool | None = None) -> PostgresConnection:
        """Open a connection, outside the pool; ``prepare=False`` goes without prepared statements on this one."""
        context: AdaptContext = _Context(_ADAPTERS)
        connection = await _OwnConnection.connect(
            self.url,
            autocommit=True,
            prepare_threshold=None,  # until it is known who answers
            connect_timeout=CONNECT_TIMEOUT,
            cursor_factory=psycopg.AsyncRawCursor,
            context=context,
            client_encoding="utf8",
            # The user's own application_name, in the URL or in PGAPPNAME, goes before it.
            fallback_application_name=self._application,
            # A peer that has gone silent is given up in half a minute, instead of never.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,
        )
        try:
            is_direct = await _require_settings(connection)
        except BaseException:  # a cancel included
            await connection.close()
            raise
        if prepare is not False and (is_direct if self._prepare is None else self._prepare):
            _use_prepared_statements(connection)
        return connection

    @property
    def answering_for(self) -> float:
        """How many seconds ago the last long outage was noticed here, or this process opened the store."""
        return time.monotonic() - self._last_outage

    async def fetch(
        self, query: str, values: Sequence[object] | Callable[[], Sequence[object]] = (), *, repeatable: bool = True
    ) -> list[Row]:
        """Run one statement and return its rows; what the database undid, or what was lost, is sent again for a while.

        ``repeatable``: doing it twice does no harm, so it may be sent again although its first outcome is unknown.
        Values that depend on the time are a function, called for each try.
        """
        return await self._patiently(
            lambda: self._fetch_once(query, values() if callable(values) else values), repeatable=repeatable
        )

    async def _patiently(self, ask: Callable[[], Awaitable[T]], *, repeatable: bool) -> T:
        began = time.monotonic()
        pause, who = _FIRST_PAUSE, object()
        try:
            while True:
                try:
                    answer = await ask()
                except psycopg.Error as error:
                    again = (was_undone(error) and not is_damage(error)) or (repeatable and is_lost(error))
                    if not again:
                        raise
                    now = time.monotonic()
                    gives_up = now + pause > began + self._retry_for
                    if gives_up or now - began > LONG_WAIT:
                        self._last_outage = now
                        self._outage.failed(who, translate(error, self.where), since=began)
                    if gives_up:
                        raise translate(error, self.where) from error
                else:
                    if self._outage.is_on:
                        self._outage.worked(who)
                    return answer
                # Not all at once: processes that lost the same race would meet again.
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            if self._outage.is_on:
                self._outage.left(who)

    async def _fetch_once(self, query: str, values: Sequence[object]) -> list[Row]:
        async with self._free:
            while True:
                connection = self._idle.pop() if self._idle else await self.connect()
                try:
                    return await fetch_on(connection, query, values)
                except psycopg.Error as error:
                    if connection.prepare_threshold is None or not is_unprepared(error):
                        if not leaves_usable(error):
                            await connection.close()
                        raise
                    # It did not run. The next connection prepares it again, or prepares nothing.
                    await self._forget_statements(connection, error)
                finally:
                    await self._take_back(connection)

    async def _forget_statements(self, connection: PostgresConnection, error: psycopg.Error) -> None:
        """Close a connection whose statements the server does not know as they were prepared."""
        await connection.close()
        if isinstance(error, psycopg.errors.FeatureNotSupported):
            return  # a migration changed what the statement returns: prepared again it is right
        if self._prepare is not False:
            self._prepare = False
            _log.warning(
                "a pooler before %s does not keep prepared statements; going on without them. Set prepare to false "
                "for this store, so that nothing has to be sent twice",
                self.where,
            )
        while self._idle:
            await self._idle.pop().close()

    async def _take_back(self, connection: PostgresConnection) -> None:
        """Keep it for the next one, unless it is in the middle of something: closed, the server rolls that back."""
        if not self._closed and connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            await connection.close()

    @asynccontextmanager
    async def lent(self, begin: str) -> AsyncIterator[PostgresConnection]:
        """Lend a connection on which ``begin`` was run; who takes it has to leave it idle."""
        async with self._free:
            try:
                connection = await self._patiently(lambda: self._begin(begin), repeatable=True)
            except psycopg.Error as error:
                raise translate(error, self.where) from error
            try:
                yield connection
            except (StoreUnavailable, ReadOnlyStore):  # perhaps it leads to a server that will never do
                await connection.close()
                raise
            finally:
                await self._take_back(connection)

    async def _begin(self, begin: str) -> PostgresConnection:
        connection = self._idle.pop() if self._idle else await self.connect()
        try:
            await connection.execute(begin.encode(), prepare=False)
        except BaseException:
            await connection.close()
            raise
        return connection


async def _require_settings(connection: PostgresConnection) -> bool:
    """Undo settings of the role or the database under which our promises would not hold.

    Only those that are wrong are set: behind a pooler the session is shared with others. Returns whether the server
    itself answers: a pooler gives each client a key for cancels of its own making, with a process id that is not the
    id of the process that answers.
    """
    names = list(_REQUIRED_SETTINGS)
    asked = ", ".join(["pg_backend_pid()", *(f"current_setting('{name}')" for name in names)])
    [(pid, *found)] = await fetch_on(connection, f"SELECT {asked}")
    for name, value in zip(names, found, strict=True):
        if value in _REQUIRED_SETTINGS[name]:
            await fetch_on(connection, f"SET {name} = '{_REQUIRED_SETTINGS[name][value]}'")
    return bool(pid == connection.info.backend_pid)


def _use_prepared_statements(connection: PostgresConnection) -> None:
    """Prepare each statement when it is first run.

    psycopg numbers them from 0 on each connection. A pooler that lends sessions without keeping track of statements
    would then run the statement of another client that has the same number, with our values. Numbers that no other
    connection has make such a call fail instead, before anything runs.
    """
    connection.prepare_threshold = 0
    # The driver has no setting for it.
    connection._prepared._prepared_idx = secrets.randbits(62)  # noqa: SLF001


class _Context:
    """Gives new connections our adapters."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters


async def fetch_on(connection: PostgresConnection, query: str, values: Sequence[object] = ()) -> list[Row]:
    """Run one statement on this connection and return its rows, in binary."""
    cursor = connection.cursor(binary=True)
    await with_cancel(cursor.execute(query.encode(), values))
    # Not cursor.description, which would describe every column again.
    return await cursor.fetchall() if cursor.rownumber is not None else []


async def with_cancel(call: Awaitable[T]) -> T:
    """Await the driver. A cancel that comes meanwhile counts, also if the driver then has an error to tell instead."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await call
    except psycopg.Error as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise


def unreachable(error: psycopg.Error, where: str) -> StoreUnavailable:
    """Say in one line that there is no such server, or that it does not let us in."""
    reason = str(error).strip().splitlines()
    return StoreUnavailable(f"cannot connect to {where}: {reason[0].strip() if reason else type(error).__name__}")
