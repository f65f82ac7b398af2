from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast
from holdfast.testing import Sandbox, sandbox


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    """A Holdfast in memory with a worker, whose time skips all waits; tests define their tasks on box.hold."""
    async with sandbox(Holdfast("memory://")) as box:
        yield box
