"""An application with a clock in hand, on each database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from holdfast import Holdfast, ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def hold(url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    async with Holdfast(url, clock=clock) as hold:
        yield hold
