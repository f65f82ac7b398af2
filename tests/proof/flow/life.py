"""The life of a process that sends one verb and kills itself with SIGKILL at a chosen moment of it.

On SQLite, and between two queries on PostgreSQL, a moment is the number of an event. Within a query of PostgreSQL,
it is a table: the verb waits for a lock on that table, which the same process holds on another connection. Then either
the server ends its session first, or only the client dies, and the server, which does not notice, finishes the query.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import apsw
import psycopg

from holdfast import Holdfast
from holdfast.store.postgres import connections
from holdfast.store.sqlite import SqliteStore
from tests.proof.flow.verbs import VERBS, application

PATIENCE = 60.0

_BESIDE = re.compile("pg_notify|pg_backend_pid")
"""Queries that belong to no verb: hints, and the first question on a new connection."""


@dataclass(frozen=True)
class AtEvent:
    """Right before the so-many-th event, counted from 1."""

    number: int


@dataclass(frozen=True)
class AtTable:
    """While the server waits for this table; ``with_session``: its session ends before the process does."""

    table: str
    with_session: bool
    locks_rows: bool = False


Moment = AtEvent | AtTable


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Events:
    """What the store does for a verb: on SQLite each statement that writes, on PostgreSQL each query."""

    dies_at: int = 0
    seen: list[str] = field(default_factory=list)

    def note(self, event: str) -> None:
        self.seen.append(event)
        if len(self.seen) == self.dies_at:
            die()

    async def watch(self, hold: Holdfast, send: Callable[[Holdfast], Awaitable[object]]) -> object:
        """Send the verb and note the events meanwhile; the last one is that it is answered."""
        store = hold.store
        answer = await (self._in_sqlite if isinstance(store, SqliteStore) else self._in_postgres)(hold, send)
        self.note("answered")
        return answer

    async def _in_sqlite(self, hold: Holdfast, send: Callable[[Holdfast], Awaitable[object]]) -> object:
        assert isinstance(hold.store, SqliteStore)
        writer = hold.store._backend.writer
        assert writer is not None

        def before_statement(_: apsw.Cursor, sql: str, __: object) -> bool:
            if not sql.startswith("PRAGMA"):
                self.note(sql)
            return True

        commit = writer._commit

        def commit_and_note(connection: apsw.Connection) -> None:
            commit(connection)
            self.note("committed")

        connection: Any = writer._connection
        connection.exec_trace = before_statement
        writer._commit = commit_and_note
        try:
            return await send(hold)
        finally:
            connection.exec_trace = None
            writer._commit = commit

    async def _in_postgres(self, hold: Holdfast, send: Callable[[Holdfast], Awaitable[object]]) -> object:
        fetch_on = connections.fetch_on

        async def fetch_and_note(
            connection: connections.PostgresConnection, query: str, values: Sequence[object] = ()
        ) -> list[connections.Row]:
            counts = not _BESIDE.search(query)
            if counts:
                self.note(query)
            rows = await fetch_on(connection, query, values)
            if counts:
                self.note("fetched")
            return rows

        with mock.patch.object(connections, "fetch_on", fetch_and_note):
            return await send(hold)


async def _die_at_table(hold: Holdfast, url: str, send: Callable[[Holdfast], Awaitable[object]], at: AtTable) -> None:
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watcher:
        lock = "SELECT FROM holdfast.{} FOR UPDATE" if at.locks_rows else "LOCK TABLE holdfast.{} IN EXCLUSIVE MODE"
        holder.execute(lock.format(at.table).encode())
        sending = asyncio.ensure_future(send(hold))
        give_up_at = time.monotonic() + PATIENCE
        while time.monotonic() < give_up_at and not sending.done():
            await asyncio.sleep(0.005)
            waiting = watcher.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchall()
            if waiting:
                [(pid,)] = waiting
                if at.with_session:
                    watcher.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
                die()
    raise AssertionError(f"it did not wait for {at.table}: {sending}")


async def _live(url: str, verb_name: str, moment: Moment) -> None:
    [verb] = [verb for verb in VERBS if verb.name == verb_name]
    async with application(url) as hold:
        if isinstance(moment, AtTable):
            await _die_at_table(hold, url, verb.send, moment)
        else:
            await Events(dies_at=moment.number).watch(hold, verb.send)


def live(url: str, verb_name: str, moment: Moment) -> None:
    """Send the verb, and be killed."""
    asyncio.run(_live(url, verb_name, moment))
