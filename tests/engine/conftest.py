from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, ManualClock, StateStore
from holdfast.store.url import make_store
from tests.engine.support import Watched
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
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hold.db"
    emptied: EmptiedDatabase = request.getfixturevalue("emptied_database")
    return emptied.empty()


@pytest.fixture
async def timed(database_url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An open Holdfast on a database, whose time stands still until ``clock`` is moved."""
    async with Holdfast(database_url, clock=clock) as hold:
        yield hold


@pytest.fixture
async def still(clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An open Holdfast in memory, whose time stands still until ``clock`` is moved."""
    async with Holdfast("memory://", clock=clock) as hold:
        yield hold


@pytest.fixture
async def quick() -> AsyncIterator[Holdfast]:
    """An open Holdfast in memory."""
    async with Holdfast("memory://") as hold:
        yield hold


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Watched]]:
    """Have every store that is opened from now on watched; returns the watches, the latest last."""

    def start() -> list[Watched]:
        watches: list[Watched] = []

        def make_watched(*args: Any, **options: Any) -> StateStore:  # noqa: ANN401
            store = make_store(*args, **options)
            watches.append(Watched(store))
            return store

        monkeypatch.setattr("holdfast.engine.holdfast.make_store", make_watched)
        return watches

    return start
