"""The databases, and the ways to reach a server on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine_proof.conftest import new_database, url
from tests.mcp_proof.reaching import Reached, serving

__all__ = ["new_database", "url"]


@pytest.fixture(params=["stdio", "http"])
async def reached(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> AsyncIterator[Reached]:
    """A server, reached over stdio or over HTTP."""
    if request.param == "stdio":
        yield Reached(url)
        return
    async with serving(url, tmp_path) as reached:
        yield reached


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """The era of the client."""
    return str(request.param)
