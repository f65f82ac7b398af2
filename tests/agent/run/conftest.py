from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast, ManualClock
from tests.ready_schema import new_file
from tests.stores import MEMORY


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file that several Holdfasts open one after the other."""
    return f"sqlite:///{new_file(tmp_path / 'hold.db')}"


@pytest.fixture(params=["sqlite", MEMORY])
async def hold(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast, on a file and in memory."""
    async with Holdfast(url if request.param == "sqlite" else "memory://") as hold:
        yield hold


@pytest.fixture
def clock() -> ManualClock:
    """A time that only passes by hand, and goes on from one Holdfast to the next."""
    return ManualClock()
