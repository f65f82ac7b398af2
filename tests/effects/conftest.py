from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast import Holdfast
from tests.effects.support import World
from tests.stores import url

__all__ = ["url"]


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
