"""Commands that look change nothing: they neither make nor set up a store, whatever was mistyped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from tests.cli.project.support import contents, refusal
from tests.cli.terminal.support import APPLICATION, holdfast, read
from tests.postgres_server import PostgresServer

LOOKING = [
    ("list",),
    ("show",),
    ("watch",),
    ("queues",),
    ("workers",),
    ("approvals",),
    ("doubts",),
    ("memory", "export"),
]


@pytest.fixture
def database(postgres18: PostgresServer) -> Iterator[str]:
    """An empty one."""
    url = postgres18.create_database()
    yield url
    postgres18.drop_database(url)


@pytest.mark.parametrize("command", LOOKING)
def test_an_empty_file_stays_empty(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "hold.db").touch()
    before = contents(tmp_path)
    assert "there is no store" in refusal(holdfast(*command, url=f"sqlite:///{tmp_path}/hold.db"), 1)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("command", [("list",), ("show",), ("watch",), ("cancel", "--queue", "q", "--yes")])
def test_an_empty_database_stays_empty(database: str, command: tuple[str, ...]) -> None:
    line = refusal(holdfast(*command, url=database), 1)
    assert "migrate" in line
    assert _schemas(database) == set()


async def test_a_mistyped_schema_is_not_made(database: str) -> None:
    async with Holdfast(database):
        pass
    before = _schemas(database)
    assert before
    line = refusal(holdfast("list", url=database, HOLDFAST_SCHEMA="typo"), 1)
    assert "migrate" in line
    assert _schemas(database) == before


def test_a_submitter_sets_it_up(database: str) -> None:
    assert holdfast("submit", APPLICATION, "echo", "--input", "x", url=database).returncode == 0
    assert len(read("list", url=database)["tasks"]) == 1


def _schemas(url: str) -> set[str]:
    query = "SELECT DISTINCT table_schema FROM information_schema.tables WHERE table_schema NOT IN (%s, %s)"
    with psycopg.connect(url) as connection:
        return {schema for (schema,) in connection.execute(query, ("pg_catalog", "information_schema"))}
