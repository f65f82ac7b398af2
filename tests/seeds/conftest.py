from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.engine.conftest import emptied_database
from tests.store.contract.truncating import EmptiedDatabase

__all__ = ["emptied_database"]


def _empty(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    match kind:
        case "memory":
            return "memory://"
        case "json":
            return f"json:///{folder}/hold"
        case "sqlite":
            return f"sqlite:///{folder}/hold.db"
        case _:
            emptied: EmptiedDatabase = request.getfixturevalue("emptied_database")
            return emptied.empty()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return _empty(request.param, tmp_path, request)


@pytest.fixture(params=["json", "sqlite", "postgres"])
def lasting_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind that outlives its process."""
    return _empty(request.param, tmp_path, request)


@pytest.fixture
def json_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of files."""
    return _empty("json", tmp_path, request)


@pytest.fixture
async def hold(url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast, on each kind of store."""
    async with Holdfast(url) as hold:
        yield hold
