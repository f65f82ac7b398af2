"""The databases of these proofs: each of them runs on both."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes empty databases, and returns their URLs."""
    if request.param == "sqlite":
        numbers = itertools.count(1)
        return lambda: f"sqlite:///{tmp_path}/flow-{next(numbers)}.db"
    server: PostgresServer = request.getfixturevalue("postgres18")
    return server.create_database


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    """One empty database."""
    return new_database()
