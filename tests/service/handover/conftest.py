from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast, ManualClock
from tests.engine.conftest import clock
from tests.service.handover.support import Outside

__all__ = ["clock"]

# The machine is not a test module, but its assertions should also show what they compared.
pytest.register_assert_rewrite("tests.service.handover.machine")


@pytest.fixture
async def hold(url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An open Holdfast on each kind of store, whose time stands still until ``clock`` is moved."""
    async with Holdfast(url, clock=clock) as hold:
        yield hold


@pytest.fixture
async def living(url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast on each kind of store, in real time: for what has workers of its own."""
    async with Holdfast(url) as hold:
        yield hold


@pytest.fixture
def ada(hold: Holdfast) -> Outside:
    return Outside(hold, "ada")


@pytest.fixture
def bob(hold: Holdfast) -> Outside:
    return Outside(hold, "bob")
