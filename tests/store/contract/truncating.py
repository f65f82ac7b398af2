"""An empty PostgreSQL store for every test, without a new database for every test."""

from __future__ import annotations

import asyncio

import psycopg
from psycopg import sql

from holdfast.store.postgres import PostgresStore
from tests import warm_connections
from tests.postgres_server import PostgresServer

SCHEMA = "holdfast"

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'migrations' ORDER BY tablename"


class EmptiedDatabase:
    """One database with the schema in it, emptied on request."""

    def __init__(self, server: PostgresServer) -> None:
        self.url = server.create_database()
        asyncio.run(self._create_schema())
        warm_connections.keep_warm(self.url)
        self._connection = psycopg.connect(self.url, autocommit=True)
        names = [name for (name,) in self._connection.execute(_TABLES, (SCHEMA,))]
        # One statement without TRUNCATE's new files: the tables of a test hold a handful of rows.
        deletes = [sql.SQL("DELETE FROM {}").format(sql.Identifier(SCHEMA, name)) for name in names]
        self._empty = sql.SQL("SET session_replication_role = replica; ") + sql.SQL("; ").join(deletes)

    async def _create_schema(self) -> None:
        async with PostgresStore(self.url, schema=SCHEMA):
            pass

    def empty(self) -> str:
        """Delete everything that was stored; return the database's URL."""
        self._connection.execute(self._empty)
        return self.url

    def close(self) -> None:
        warm_connections.close(self.url)
        self._connection.close()
