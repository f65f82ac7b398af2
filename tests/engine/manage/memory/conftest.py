from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def hold(url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An open Holdfast on each kind of store, whose time stands still until ``clock`` is moved."""
    async with Holdfast(url, clock=clock) as hold:
        yield hold
