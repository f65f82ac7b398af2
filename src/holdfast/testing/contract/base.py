"""The fixtures that all topics of the contract share, and how a store's author provides them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from holdfast.model.clock import ManualClock
from holdfast.store.base import StateStore

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
"""When the clock of every test begins."""


class ContractBase:
    """A topic of the contract. A subclass named ``Test...`` supplies the ``store`` fixture."""

    pytestmark: ClassVar = [pytest.mark.asyncio]

    leases_on_boot_clock: ClassVar[bool] = True
    """Leases are counted on the machine's boot clock. False for a store that several machines share: the wall time of
    its database is the only clock they have in common."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The clock of the test; the store must use it."""
        return ManualClock(START)

    @pytest.fixture
    async def store(self, clock: ManualClock) -> StateStore:
        """An open, empty store that uses ``clock``."""
        raise NotImplementedError(f"{type(self).__name__} must supply a store that uses {clock}")

    @pytest.fixture
    def another_store(self, clock: ManualClock) -> Callable[[], StateStore]:
        """Make further, unopened stores over the same data as ``store``. Only for stores that outlive their process."""
        raise NotImplementedError(f"{type(self).__name__} must supply another store that uses {clock}")
