from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.engine.conftest import emptied_database
from tests.store.contract.truncating import EmptiedDatabase

__all__ = ["emptied_database"]


@pytest.fixture
async def hold(tmp_path: Path) -> AsyncIterator[Holdfast]:
    """An open Holdfast on a file of its own."""
    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        yield hold


@pytest.fixture(params=["sqlite", "postgres"])
def either_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store in a file, and one on a server."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hold.db"
    emptied: EmptiedDatabase = request.getfixturevalue("emptied_database")
    return emptied.empty()


@pytest.fixture
async def either(either_url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast on SQLite, and one on PostgreSQL."""
    async with Holdfast(either_url) as hold:
        yield hold


@pytest.fixture
def app() -> Holdfast:
    """A Holdfast to register agents in, for a sandbox to open."""
    return Holdfast("memory://")
