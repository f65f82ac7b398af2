from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.testing import Sandbox, sandbox
from tests.ready_schema import new_file


@pytest.fixture
async def hold(tmp_path: Path) -> AsyncIterator[Holdfast]:
    """An open Holdfast on a file of its own."""
    async with Holdfast(f"sqlite:///{new_file(tmp_path / 'hold.db')}") as hold:
        yield hold


@pytest.fixture
async def either(database_url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast on SQLite, and one on PostgreSQL."""
    async with Holdfast(database_url) as hold:
        yield hold


@pytest.fixture
def app() -> Holdfast:
    """A Holdfast to register agents in, for a sandbox to open."""
    return Holdfast("memory://")


@pytest.fixture
async def box(app: Holdfast) -> AsyncIterator[Sandbox]:
    """A Holdfast in memory with a worker, whose time skips all waits; tests register their agents on app."""
    async with sandbox(app) as box:
        yield box
