from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.effects.support import World
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
async def hold(url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast, on each kind of store."""
    async with Holdfast(url) as hold:
        yield hold


@pytest.fixture
async def quick() -> AsyncIterator[Holdfast]:
    """An open Holdfast in memory."""
    async with Holdfast("memory://") as hold:
        yield hold


@pytest.fixture
def app() -> Holdfast:
    """A Holdfast to define tasks in, for a sandbox to open."""
    return Holdfast("memory://")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.release()
