from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, ManualClock
from tests.postgres_server import PostgresServer
from tests.store.contract.truncating import EmptiedDatabase


@pytest.fixture(scope="session")
def emptied_database(postgres18: PostgresServer) -> Iterator[EmptiedDatabase]:
    database = EmptiedDatabase(postgres18)
    yield database
    database.close()


@pytest.fixture(params=["memory", "json", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    match request.param:
        case "memory":
            return "memory://"
        case "json":
            return f"json:///{tmp_path}/hold"
        case "sqlite":
            return f"sqlite:///{tmp_path}/hold.db"
        case _:
            emptied: EmptiedDatabase = request.getfixturevalue("emptied_database")
            return emptied.empty()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def hold(url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An open Holdfast on each kind of store, whose time stands still until ``clock`` is moved."""
    async with Holdfast(url, clock=clock) as hold:
        yield hold
