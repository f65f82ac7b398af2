"""What all parts of the PostgreSQL store share: connections, named queries, the clock, hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import psycopg

from holdfast.model.clock import Clock
from holdfast.model.errors import InvalidValue, StoreClosed
from holdfast.store.clock import SystemClock
from holdfast.store.postgres.connections import Connections, Row
from holdfast.store.postgres.errors import place, translate
from holdfast.store.postgres.notices import Notices
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlfiles import named_queries

_QUERIES = named_queries("holdfast.store.postgres", "queries.sql")


class PostgresBase(SimpleInterface):
    """A store that may be open."""

    def __init__(self, url: str, *, schema: str, clock: Clock | None) -> None:
        """Prepare the queries for this schema; nothing is connected yet."""
        self._where = place(url)
        self._schema = schema
        self._queries = {name: sql.replace("{schema}", f'"{schema}"') for name, sql in _QUERIES.items()}
        self._clock = None if clock is None or isinstance(clock, SystemClock) else clock
        self._connections: Connections | None = None
        self._lendable: Connections | None = None
        """Apart from the others: however many transactions users hold open, no heartbeat waits for one."""
        self._notices: Notices | None = None
        self._newest_seen = 0
        """The version of the schema at the last heartbeat that found it newer than this program."""
        self._outdated: str | None = None
        """Why this program may claim nothing more, once a newer one has migrated the schema."""

    def _at(self) -> datetime | None:
        """Return the time of a test's clock; None lets the database take its own."""
        return None if self._clock is None else self._clock.now()

    def _open_connections(self) -> Connections:
        if self._connections is None:
            raise StoreClosed(f"the store in {self._where} is not open; use it inside `async with store:`")
        self._connections.owner.check()
        return self._connections

    async def _fetch(self, query: str, *values: object, repeatable: bool = True) -> list[Row]:
        """Run a named query and return its rows."""
        return await self._fetch_anew(query, lambda: values, repeatable=repeatable)

    async def _fetch_anew(
        self, query: str, values: Callable[[], Sequence[object]], *, repeatable: bool = True
    ) -> list[Row]:
        """Run a named query with values that are asked for before each try; return its rows."""
        connections = self._open_connections()
        try:
            return await connections.fetch(self._queries[query], values, repeatable=repeatable)
        except psycopg.Error as error:
            raise translate(error, self._where) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise InvalidValue(f"a value that {self._where} cannot hold: {error}; nothing was written") from error

    def _publish(self, topics: Iterable[str]) -> None:
        if self._notices is not None:
            self._notices.publish(topics)
