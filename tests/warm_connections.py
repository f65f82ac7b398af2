"""Connections to PostgreSQL that go on: what a store closes, the store of the next test uses.

A new connection has compiled no function and planned no statement yet. For a task of one step that is 40 ms of the
server's processor time, more than the rest of the test. Only the databases of `EmptiedDatabase` do so: their tests need
an empty store. A test about connections themselves takes a database of its own, `create_store()`.
"""

from __future__ import annotations

import os
from contextlib import suppress

import psycopg
from psycopg.abc import PQGenConn
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, ExecStatus, PGconn, TransactionStatus
from psycopg.pq import abc as pq

from holdfast.process_fork import blank
from holdfast.store.postgres import connections

_CLEAN = b"RESET ALL; UNLISTEN *; CLOSE ALL; DEALLOCATE ALL; DISCARD TEMP; SELECT pg_advisory_unlock_all()"
"""DISCARD ALL without DISCARD PLANS: what the functions have planned is what is kept."""

_MOST = 8
"""More than a store opens at once."""

_kept: dict[tuple[str, str], dict[str, list[pq.PGconn]]] = {}
"""By the database and by what the connection was asked for."""

_closed = PGconn.connect_start(b"dbname=none host=/nowhere")
_closed.finish()


class _WarmConnection(connections._OwnConnection):
    _asked = ""

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[_WarmConnection]:
        kept = _kept.get(_database(conninfo), {}).get(conninfo, [])
        connection = None
        while kept and connection is None:
            pgconn = kept.pop()
            if pgconn.exec_(b"").status == ExecStatus.EMPTY_QUERY:
                connection = cls(pgconn)
            else:  # the server was restarted, or a test ended it
                pgconn.finish()
        if connection is None:
            connection = yield from super()._connect_gen(conninfo)
        connection._asked = conninfo
        return connection

    async def close(self) -> None:
        if not self.closed and not self._owner.is_other and _keep(self._asked, self.pgconn):
            self._closed = True
            self.pgconn = _closed
        else:
            await super().close()


connections._OwnConnection = _WarmConnection  # type: ignore[misc]


def keep_warm(url: str) -> None:
    """From now on, keep what stores close in this database."""
    _kept[_database(url)] = {}


def close(url: str) -> None:
    """Close what was kept, and keep nothing more."""
    for pgconns in _kept.pop(_database(url)).values():
        for pgconn in pgconns:
            pgconn.finish()


def _database(conninfo: str) -> tuple[str, str]:
    parts = conninfo_to_dict(conninfo)
    return str(parts.get("host")), str(parts.get("dbname"))


def _keep(asked: str, pgconn: pq.PGconn) -> bool:
    kept = _kept.get(_database(asked)) if asked else None
    if kept is None or pgconn.status != ConnStatus.OK or pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    ours = kept.setdefault(asked, [])
    if len(ours) >= _MOST or pgconn.exec_(_CLEAN).status != ExecStatus.TUPLES_OK:
        return False
    while pgconn.notifies():
        pass
    ours.append(pgconn)
    return True


def _release_in_child() -> None:
    for kept in _kept.values():
        for pgconn in (pgconn for pgconns in kept.values() for pgconn in pgconns):
            with suppress(psycopg.Error):
                blank(pgconn.socket)


os.register_at_fork(after_in_child=_release_in_child)
