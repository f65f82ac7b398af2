"""What the databases do with facts: find them by index, and keep users' own SQL away from them."""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

import apsw
import psycopg
import pytest
from psycopg import sql

from holdfast import Holdfast, InvalidValue, Transaction
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.listings import facts_query as postgres_facts_query
from holdfast.store.postgres.sql import QUERIES as POSTGRES_QUERIES
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.listings import facts_query
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.sql import QUERIES
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import execute

EVERYTHING: dict[str, Any] = {
    "entity": None,
    "attribute": None,
    "other": None,
    "live": False,
    "contested": False,
    "after": None,
    "limit": 10,
}
LISTINGS: dict[str, dict[str, Any]] = {
    "facts_live": {"entity": "e5", "live": True},
    "facts_by_subject": {"entity": "e5", "attribute": "a"},
    "facts_by_other": {"other": "e5", "live": True},
    "facts_by_age": {},
}
"""By the index that should find them."""


@pytest.fixture
def connection() -> apsw.Connection:
    made = connect(":memory:", durable=False)
    migrate(made, ":memory:")
    return made


def plan_of(connection: apsw.Connection, query: str, values: Any) -> str:  # noqa: ANN401
    return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values))


@pytest.mark.parametrize("index", ["facts_by_subject", "facts_by_other", "facts_by_age"])
def test_sqlite_lists_facts_by_index(connection: apsw.Connection, index: str) -> None:
    plan = plan_of(connection, *facts_query(**(EVERYTHING | LISTINGS[index])))
    assert f"USING INDEX {index}" in plan


def test_sqlite_reads_a_subject_without_its_history(connection: apsw.Connection) -> None:
    plan = plan_of(connection, QUERIES["subject_facts"], ("e", "a", "", "[]"))
    assert "USING INDEX facts_live (entity=? AND attribute=? AND other=?)" in plan
    assert "USING INDEX sqlite_autoindex_facts_1 (id=?)" in plan


@pytest.mark.parametrize(("query", "parameters"), {"fact": 1, "subject_mark": 3, "delete_mark": 3, "search": 2}.items())
def test_sqlite_reads_no_table_from_end_to_end(connection: apsw.Connection, query: str, parameters: int) -> None:
    plan = plan_of(connection, QUERIES[query], ("x",) * parameters)
    assert not re.search(r"SCAN (facts|fact_records|subjects)\b", plan), plan


FILL = """
    INSERT INTO holdfast.facts
    SELECT 'f' || n, 'e' || n / 100, 'a', CASE WHEN n % 50 = 0 THEN 'e' || n % 1000 ELSE '' END, 'null', 1, NULL, 's',
           now() + n * interval '1 second', NULL, NULL, CASE WHEN n % 10 = 0 THEN NULL ELSE 'f0' END,
           array_to_tsvector(ARRAY['word' || n, 'common'])
    FROM generate_series(1, 50000) AS n
"""
"""A hundred facts of each entity, of which ten are live and two lead elsewhere."""


@pytest.fixture(scope="module")
def filled(postgres18: PostgresServer) -> str:
    async def create() -> None:
        async with PostgresStore(url):
            pass

    url = postgres18.create_database()
    asyncio.run(create())
    execute(url, FILL, "ANALYZE holdfast.facts")
    return url


def indexes_of(url: str, query: str, values: list[object]) -> set[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"PREPARE question AS {query.replace('{schema}', 'holdfast')}".encode())
        arguments = sql.SQL(", ").join(map(sql.Literal, values))
        call = sql.SQL("question ({})").format(arguments) if values else sql.SQL("question")
        explain = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE {}").format(call)
        [(explained,)] = connection.execute(explain).fetchall()
    nodes = list(_nodes(explained[0]["Plan"]))
    assert "Seq Scan" not in {node["Node Type"] for node in nodes if node.get("Relation Name") == "facts"}, explained
    return {node["Index Name"] for node in nodes if "Index Name" in node}


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *itertools.chain.from_iterable(map(_nodes, plan.get("Plans", ())))]


@pytest.mark.parametrize("index", LISTINGS)
def test_postgres_lists_facts_by_index(filled: str, index: str) -> None:
    assert index in indexes_of(filled, *postgres_facts_query(**(EVERYTHING | LISTINGS[index])))


def test_postgres_reads_a_subject_without_its_history(filled: str) -> None:
    used = indexes_of(filled, POSTGRES_QUERIES["subject"], ["e5", "a", "", ["f501"], None])
    assert used >= {"facts_live", "facts_pkey"}
    assert "facts_by_subject" not in used


def test_postgres_finds_words_by_index(filled: str) -> None:
    assert "facts_by_word" in indexes_of(filled, POSTGRES_QUERIES["search"], [["'word777':*", "'word777'"], 10])


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO fact_words (fact_words) VALUES ('delete-all')",
        "INSERT INTO fact_words (rowid, words) VALUES (1, 'mine')",
        "DELETE FROM fact_words_data",
        "DROP TABLE fact_words",
        "DROP TRIGGER fact_is_stored",
        "DELETE FROM facts",
        "UPDATE subjects SET mark = ''",
    ],
)
async def test_user_sql_cannot_change_the_memory(statement: str) -> None:
    async def meddle(tx: Transaction) -> None:
        await tx.execute(statement)

    async with Holdfast("memory://") as hold:
        fact = await hold.memory.store("alice", "likes", "tea")
        with pytest.raises(InvalidValue, match="Holdfast's own"):
            await hold.transaction(meddle)
        assert await hold.memory.search("tea") == [fact]


async def test_sql_of_users_may_read_it() -> None:
    async def look(tx: Transaction) -> list[tuple[Any, ...]]:
        return await tx.execute("SELECT entity FROM facts JOIN fact_words ON fact_words.rowid = facts.number")

    async with Holdfast("memory://") as hold:
        await hold.memory.store("alice", "likes", "tea")
        assert await hold.transaction(look) == [("alice",)]
