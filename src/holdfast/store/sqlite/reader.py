"""Reader: a connection to a SQLite store that only reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import starmap
from typing import Any, TypeVar

import apsw

from holdfast.model.clock import Clock
from holdfast.store.records import Row
from holdfast.store.sqlite.inherited import keep
from holdfast.store.sqlite.sql import QUERIES

T = TypeVar("T")


class Reader:
    """Reads. No transaction stays open between two calls, so no reader ever keeps the WAL from being reset."""

    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        """Use this connection, from one thread at a time; the clock is the store's."""
        self.connection = connection
        self._clock = clock

    def now(self) -> datetime:
        """Return the time the store goes by."""
        return self._clock.now()

    def rows(self, query: str, *values: Any) -> Iterator[Row]:  # noqa: ANN401 - whatever SQLite can bind
        """Run a named query and return its rows."""
        return self.connection.execute(QUERIES[query], values)

    def all(self, make: Callable[..., T], query: str, *values: Any) -> list[T]:  # noqa: ANN401
        """Run a named query; make a record of each row, whose columns are the parameters of ``make``."""
        return list(starmap(make, self.connection.execute(QUERIES[query], values)))

    def first(self, make: Callable[..., T], query: str, *values: Any) -> T | None:  # noqa: ANN401
        """Run a named query; make a record of its first row, if there is one."""
        found = self.all(make, query, *values)
        return found[0] if found else None

    def number(self, query: str, *values: Any) -> int:  # noqa: ANN401
        """Run a named query whose answer is one number."""
        return int(self.connection.execute(QUERIES[query], values).get)

    def select(self, make: Callable[..., T], listing: tuple[str, Sequence[Any]]) -> list[T]:
        """Run a statement of listings.py; make a record of each row."""
        sql, values = listing
        return list(starmap(make, self.connection.execute(sql, values)))

    def at_one_moment(self) -> AbstractContextManager[Any]:
        """Let everything that the block reads be of one moment: a savepoint."""
        return self.connection

    def release_in_child(self) -> None:
        """Never touch the connection again: this is a forked child, and it is the parent's."""
        self.connection = keep(self.connection)

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()
