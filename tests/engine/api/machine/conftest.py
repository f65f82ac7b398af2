from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast, ManualClock
from tests.stores import MEMORY, empty_store


@pytest.fixture(params=[MEMORY, "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store, in the process, in a file and in a server."""
    return empty_store(request.param, request, tmp_path)


@pytest.fixture
async def hold(url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(url) as hold:
        yield hold


@pytest.fixture
async def quick() -> AsyncIterator[Holdfast]:
    async with Holdfast("memory://") as hold:
        yield hold


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def still(clock: ManualClock) -> AsyncIterator[Holdfast]:
    """A Holdfast whose time stands still until ``clock`` is moved."""
    async with Holdfast("memory://", clock=clock) as hold:
        yield hold
