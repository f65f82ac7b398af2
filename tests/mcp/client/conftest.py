from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.mcp.client.support import World
from tests.ready_schema import new_file


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def hold(tmp_path: Path) -> AsyncIterator[Holdfast]:
    """An open Holdfast on a file of its own."""
    async with Holdfast(f"sqlite:///{new_file(tmp_path / 'hold.db')}") as hold:
        yield hold
