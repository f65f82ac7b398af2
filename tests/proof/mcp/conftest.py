"""The databases, and the ways to reach a server on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.proof.engine.conftest import new_database, url
from tests.proof.mcp.reaching import Reached, serving

__all__ = ["new_database", "url"]


@pytest.fixture(params=["stdio-sqlite", "http-postgres"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reached]:
    """Each way and each database once, for tests that depend little on either."""
    if request.param == "stdio-sqlite":
        yield Reached(f"sqlite:///{tmp_path}/agents.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres18")
    async with serving(server.create_store(), tmp_path) as reached:
        yield reached


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


EVERY_DAY = ("[stdio-sqlite-auto]", "[http-postgres-legacy]")
"""Each way, each database and each era once. `make test-all` has all combinations."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"reached", "mode"} <= set(getattr(item, "fixturenames", ())) and not item.name.endswith(EVERY_DAY):
            item.add_marker(pytest.mark.full)
