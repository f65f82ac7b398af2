"""A database that is really away for a while, for every process that uses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import TypeVar

import apsw
import psycopg
from psycopg import conninfo, sql

from holdfast import StoreBusy, StoreUnavailable

R = TypeVar("R")
PAUSE = 0.05


def take_away(url: str, seconds: float) -> None:
    """Make a database unavailable for so long: a server's refuses and cuts connections, a file is locked."""
    if url.startswith("sqlite"):
        _lock(url.removeprefix("sqlite:///"), seconds)
    else:
        _refuse(url, seconds)


def _lock(path: str, seconds: float) -> None:
    with closing(apsw.Connection(path)) as connection:
        connection.set_busy_timeout(60_000)
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(seconds)
        connection.execute("ROLLBACK")


def _refuse(url: str, seconds: float) -> None:
    name = str(conninfo.conninfo_to_dict(url)["dbname"])
    accepts = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    until = time.monotonic() + seconds
    with psycopg.connect(conninfo.make_conninfo(url, dbname="postgres"), autocommit=True) as connection:
        connection.execute(accepts.format(sql.Identifier(name), sql.SQL("false")))
        try:
            while time.monotonic() < until:
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
                time.sleep(PAUSE)
        finally:
            connection.execute(accepts.format(sql.Identifier(name), sql.SQL("true")))


async def persist(call: Callable[[], Awaitable[R]]) -> R:
    """Make a call that may be made again until the database answers it."""
    while True:
        try:
            return await call()
        except (StoreUnavailable, StoreBusy):
            await asyncio.sleep(PAUSE)
