from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from tests.engine.effects.support import World


@pytest.fixture
def app() -> Holdfast:
    """A Holdfast to define tasks in, for a sandbox to open."""
    return Holdfast("memory://")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.release()
