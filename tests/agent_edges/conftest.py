from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file that several Holdfasts open one after the other."""
    return f"sqlite:///{tmp_path}/hold.db"


@pytest.fixture(params=["sqlite", "memory"])
async def hold(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast, on a file and in memory."""
    async with Holdfast(url if request.param == "sqlite" else "memory://") as hold:
        yield hold
