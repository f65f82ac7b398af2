from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.stores import empty_store


@pytest.fixture(params=["json", "sqlite", "postgres"])
def lasting_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind that outlives its process."""
    return empty_store(request.param, request, tmp_path)


@pytest.fixture
def json_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of files."""
    return empty_store("json", request, tmp_path)


@pytest.fixture
async def hold(url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast, on each kind of store."""
    async with Holdfast(url) as hold:
        yield hold
