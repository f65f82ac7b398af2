from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast import Holdfast, ManualClock, StateStore
from holdfast.store.url import make_store
from tests.engine.support import Watched


@pytest.fixture
async def hold(url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast, on each kind of store."""
    async with Holdfast(url) as hold:
        yield hold


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def timed(database_url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An open Holdfast on a database, whose time stands still until ``clock`` is moved."""
    async with Holdfast(database_url, clock=clock) as hold:
        yield hold


@pytest.fixture
async def still(clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An open Holdfast in memory, whose time stands still until ``clock`` is moved."""
    async with Holdfast("memory://", clock=clock) as hold:
        yield hold


@pytest.fixture
async def quick() -> AsyncIterator[Holdfast]:
    """An open Holdfast in memory."""
    async with Holdfast("memory://") as hold:
        yield hold


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Watched]]:
    """Have every store that is opened from now on watched; returns the watches, the latest last."""

    def start() -> list[Watched]:
        watches: list[Watched] = []

        def make_watched(*args: Any, **options: Any) -> StateStore:  # noqa: ANN401
            store = make_store(*args, **options)
            watches.append(Watched(store))
            return store

        monkeypatch.setattr("holdfast.engine.api.async_holdfast.make_store", make_watched)
        return watches

    return start
