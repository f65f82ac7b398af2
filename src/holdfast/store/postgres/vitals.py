"""How a store in PostgreSQL is doing: its size, its settings, and what holds back its VACUUM."""

from __future__ import annotations

import psycopg

from holdfast.model.queries import Vitals
from holdfast.store.postgres.base import PostgresBase
from holdfast.store.postgres.errors import translate
from holdfast.store.records import Row


class Looking(PostgresBase):
    """See Reads."""

    async def vitals(self, *, thorough: bool = False) -> Vitals:  # noqa: ARG002 - damage is the server's to find
        """See Reads."""
        [(version, schema, size)] = await self._fetch("vitals")
        snapshots = await self._if_allowed("oldest_snapshot")
        return Vitals(
            backend="PostgreSQL",
            version=version.split()[0],  # behind it stands who packaged it
            schema=schema,
            bytes=size,
            rows=dict(await self._fetch("estimate_rows")),
            exact_rows=False,
            settings=dict(await self._if_allowed("settings")),
            oldest_snapshot_seconds=snapshots[0][0] if snapshots else None,
        )

    async def _if_allowed(self, query: str) -> list[Row]:
        """Run a query on views that an administrator may have closed to this role; no rows where that is so."""
        try:
            return await self._open_connections().fetch(self._queries[query])
        except psycopg.errors.InsufficientPrivilege:
            return []
        except psycopg.Error as error:
            raise translate(error, self._where) from error
