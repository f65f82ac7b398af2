"""A row has the columns that its reader takes, by name and in this order, in both databases."""

from __future__ import annotations

import apsw.ext
import psycopg

from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.sql import QUERIES as ON_POSTGRES
from holdfast.store.records import COLUMNS, name_columns
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.sql import QUERIES as ON_SQLITE
from tests.postgres_server import PostgresServer

WRITTEN_OUT: dict[str, tuple[str, list[str]]] = {
    "task_standing": ("task", []),
    "last_steps": ("step", ["task_id"]),
    "queues": ("queue", []),
    "workers": ("worker", []),
}
"""Queries that write the columns of a record out, with the columns that stand before them."""
ON_SQLITE_ONLY: dict[str, tuple[str, list[str]]] = {"worker": ("worker", [])}
ON_POSTGRES_ONLY = {"emit": ("event", ["hints"])}


def test_a_kind_of_record_stands_for_its_columns() -> None:
    assert name_columns("SELECT {lease} FROM tasks") == "SELECT id, owner, fence, claim FROM tasks"
    assert name_columns("ROW({l.lease})") == "ROW(l.id, l.owner, l.fence, l.claim)"
    assert name_columns("{schema}.tasks {table} {id}") == "{schema}.tasks {table} {id}"


def test_columns_that_are_written_out_for_sqlite() -> None:
    connection = connect(":memory:", durable=False)
    migrate(connection, ":memory:")
    for query, (kind, before) in {**WRITTEN_OUT, **ON_SQLITE_ONLY}.items():
        found = apsw.ext.query_info(connection, ON_SQLITE[query]).description
        assert [name for name, *_ in found] == [*before, *COLUMNS[kind]], query
    connection.close()


async def test_columns_that_are_written_out_for_postgresql(postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    async with PostgresStore(url):
        pass
    with psycopg.connect(url, autocommit=True) as connection:
        for number, (query, (kind, before)) in enumerate({**WRITTEN_OUT, **ON_POSTGRES_ONLY}.items()):
            name = f"described_{number}".encode()
            connection.pgconn.prepare(name, ON_POSTGRES[query].replace("{schema}", "holdfast").encode())
            found = connection.pgconn.describe_prepared(name)
            names = [(found.fname(place) or b"").decode() for place in range(found.nfields)]
            assert names == [*before, *COLUMNS[kind]], query
