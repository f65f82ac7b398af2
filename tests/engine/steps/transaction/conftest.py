"""Databases that take a user's own tables: each test gets an empty one of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast, make_store
from holdfast.store.simple import SimpleInterface
from tests.engine.steps.transaction.support import Bookings
from tests.store.contract.truncating import EmptiedDatabase
from tests.store.postgres.support import execute
from tests.stores import MEMORY, empty_store


@pytest.fixture
def postgres_url(emptied_database: EmptiedDatabase) -> str:
    """A PostgreSQL database with an empty store in it, and none of the tables these tests create."""
    url = emptied_database.empty()
    execute(url, "DROP TABLE IF EXISTS gates, planes, bookings")
    return url


@pytest.fixture(params=[MEMORY, "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind that has transactions."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_url")
        return found
    return empty_store(request.param, request, tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncIterator[SimpleInterface]:
    async with make_store(url) as store:
        yield store


@pytest.fixture
async def bookings(store: SimpleInterface, url: str) -> Bookings:
    """The user's own table, created."""
    made = Bookings(url)
    await made.create(store)
    return made


@pytest.fixture
async def hold(url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast, with the user's own table in its store."""
    async with Holdfast(url) as hold:
        await Bookings(url).create(hold.store)
        yield hold
