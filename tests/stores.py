"""The kinds of stores that a test runs on: two of them every day, all of them in `make test-all`.

Memory and JSON share the code of SQLite; a part of the stores' contract is run on them every day.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.ready_schema import new_file
from tests.store.contract.truncating import EmptiedDatabase

MEMORY = pytest.param("memory", marks=pytest.mark.full)
JSON = pytest.param("json", marks=pytest.mark.full)
POSTGRES_VERSIONS = [pytest.param(15, marks=pytest.mark.full), pytest.param(16, marks=pytest.mark.full), 18]


def empty_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store; a test that asks for a second one on PostgreSQL empties the first."""
    match kind:
        case "memory":
            return "memory://"
        case "json":
            return f"json:///{tmp_path}/hold"
        case "sqlite":
            return f"sqlite:///{new_file(tmp_path / 'hold.db')}"
        case _:
            emptied: EmptiedDatabase = request.getfixturevalue("emptied_database")
            return emptied.empty()


@pytest.fixture(scope="session")
def emptied_database(postgres18: PostgresServer) -> Iterator[EmptiedDatabase]:
    database = EmptiedDatabase(postgres18)
    yield database
    database.close()


@pytest.fixture(params=[MEMORY, JSON, "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return empty_store(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    return empty_store(request.param, request, tmp_path)
