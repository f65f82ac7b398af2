"""PostgreSQL: each verb of the flow of work reads a few rows and pages by index, however many rows there are.

Each query of a verb is first explained, as it would run, in a transaction that is rolled back. The plan does not show
what its functions do. Its pages include that, and the server counts the rows that are read of each table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import psycopg
import pytest

from holdfast import ManualClock
from holdfast.store.postgres import PostgresStore, connections
from holdfast.testing.contract._support import row
from tests.postgres_server import PostgresServer
from tests.store.plans.calls import NOW, Big, Call
from tests.store.plans.filling import fill_postgres

MOST_ROWS, MOST_PAGES = 1_500, 4_000
"""Of one query. Of the large store, the smallest index has more pages."""
SMALL = {"workers", "migrations"}
"""Tables that may be read from end to end."""
ROWS_READ = """
    SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
    WHERE schemaname = 'holdfast' AND (seq_tup_read > 0 OR idx_tup_fetch > 0)
"""


@dataclass
class Explained:
    """What one query read."""

    query: str
    rows: dict[str, int] = field(default_factory=dict)
    in_sequence: set[str] = field(default_factory=set)
    pages: int = 0
    sorted_rows: int = 0

    async def explain(self, connection: connections.PostgresConnection, values: Sequence[object]) -> None:
        await connections.fetch_on(connection, "BEGIN")
        before = await _counts(connection)
        await connections.fetch_on(connection, "SAVEPOINT before")
        try:
            explained = await connection.execute(
                b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + self.query.encode(), values, prepare=False
            )
            [[[explanation]]] = await explained.fetchall()
        except psycopg.Error:
            await connections.fetch_on(
                connection, "ROLLBACK TO before"
            )  # a refusal: its pages are not known, its rows are
        else:
            self._read(explanation["Plan"])
        for table, (in_sequence, by_index) in (await _counts(connection)).items():
            in_sequence_before, by_index_before = before.get(table, (0, 0))
            self.rows[table] = in_sequence - in_sequence_before + by_index - by_index_before
            if in_sequence > in_sequence_before:
                self.in_sequence.add(table)
        await connections.fetch_on(connection, "ROLLBACK")

    def _read(self, plan: dict[str, Any]) -> None:
        self.pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        sorts = [node for node in _nodes(plan) if "Sort" in node["Node Type"]]
        self.sorted_rows = max((round(node["Actual Rows"] * node["Actual Loops"]) for node in sorts), default=0)


async def _counts(connection: connections.PostgresConnection) -> dict[str, tuple[int, int]]:
    """Return how many rows of each table this session has read: in sequence, and by index."""
    rows = await connections.fetch_on(connection, ROWS_READ)
    return {table: (in_sequence, by_index) for table, in_sequence, by_index in rows}


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *itertools.chain.from_iterable(map(_nodes, plan.get("Plans", ())))]


@contextmanager
def explaining() -> Iterator[list[Explained]]:
    seen: list[Explained] = []
    fetch_on = connections.fetch_on

    async def fetch_and_explain(
        connection: connections.PostgresConnection, query: str, values: Sequence[object] = ()
    ) -> list[connections.Row]:
        if "holdfast" in query:
            with mock.patch.object(connections, "fetch_on", fetch_on):
                seen.append(Explained(query))
                await seen[-1].explain(connection, values)
        return await fetch_on(connection, query, values)

    with mock.patch.object(connections, "fetch_on", fetch_and_explain):
        yield seen


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
async def test_no_verb_goes_through_all_rows(postgres18: PostgresServer, rows: int) -> None:
    """The functions plan for each call, or once for all."""
    url = postgres18.create_database()
    try:
        async with PostgresStore(url):
            fill_postgres(url, Big(rows))
        for part, plans in enumerate(("force_custom_plan", "force_generic_plan"), 1):
            set_plans(url, plans)
            async with PostgresStore(url, clock=ManualClock(NOW)) as store:
                for name, call in Big(rows, part).calls().items():
                    with row(plans, name):
                        await check(store, call)
    finally:
        postgres18.drop_database(url)


def set_plans(url: str, mode: str) -> None:
    """Choose how plans are made in connections that are opened from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET plan_cache_mode = {mode}".encode())


async def check(store: PostgresStore, call: Call) -> None:
    with explaining() as explained:
        await call(store)
    assert explained
    for one in explained:
        with row(one):
            assert one.in_sequence <= SMALL
            assert max(one.rows.values(), default=0) < MOST_ROWS
            assert one.sorted_rows < MOST_ROWS
            assert one.pages < MOST_PAGES
