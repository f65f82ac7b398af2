"""The contract every store keeps, as a test suite that any store can be held to.

A store's author writes one module of tests; pytest and pytest-asyncio do the rest::

    class TestMyStore(StoreContract):
        @pytest_asyncio.fixture
        async def store(self, clock):
            async with MyStore(clock=clock) as store:
                yield store

A store that outlives its process also takes ``ReopenContract``, one that several processes share ``SharedContract``,
and both need the fixture ``another_store``. One topic alone can be had by its own class.
"""

import pkgutil

import pytest

# Before they are imported: so that a failed assertion of theirs shows what it compared.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from holdfast.store.base import StateStore  # noqa: E402 - after the line above, by its nature
from holdfast.testing.contract.approvals import ApprovalsContract  # noqa: E402
from holdfast.testing.contract.artifacts import ArtifactsContract  # noqa: E402
from holdfast.testing.contract.base import ContractBase  # noqa: E402
from holdfast.testing.contract.budget import BudgetContract  # noqa: E402
from holdfast.testing.contract.claim import ClaimContract  # noqa: E402
from holdfast.testing.contract.closing import ClosingContract  # noqa: E402
from holdfast.testing.contract.commit import (  # noqa: E402
    AtomicCommitContract,
    CommitBatchContract,
    ExpectedCommitContract,
    FencedCommitContract,
)
from holdfast.testing.contract.effects import EffectsContract  # noqa: E402
from holdfast.testing.contract.events import EventsContract  # noqa: E402
from holdfast.testing.contract.fidelity import FidelityContract  # noqa: E402
from holdfast.testing.contract.hints import HintsContract  # noqa: E402
from holdfast.testing.contract.history import HistoryContract  # noqa: E402
from holdfast.testing.contract.journal import (  # noqa: E402
    CheckpointsContract,
    LoadContract,
    PatchesContract,
    StepsContract,
)
from holdfast.testing.contract.lease import LeaseContract  # noqa: E402
from holdfast.testing.contract.memory import MemoryContract  # noqa: E402
from holdfast.testing.contract.moves import MovesContract  # noqa: E402
from holdfast.testing.contract.names import NamesContract  # noqa: E402
from holdfast.testing.contract.prune import PruneContract  # noqa: E402
from holdfast.testing.contract.queries import QueriesContract  # noqa: E402
from holdfast.testing.contract.sharing import ReopenContract, SharedContract  # noqa: E402
from holdfast.testing.contract.simple import ExecuteStepContract, SaveContract  # noqa: E402
from holdfast.testing.contract.submit import SubmitContract  # noqa: E402
from holdfast.testing.contract.sweep import SweepOfDeadWorkersContract, SweepOfTimeContract  # noqa: E402
from holdfast.testing.contract.waits import WaitsContract  # noqa: E402

TOPICS: tuple[type[ContractBase], ...] = (
    SubmitContract,
    ClaimContract,
    LeaseContract,
    SweepOfDeadWorkersContract,
    SweepOfTimeContract,
    FencedCommitContract,
    ExpectedCommitContract,
    CommitBatchContract,
    AtomicCommitContract,
    MovesContract,
    WaitsContract,
    BudgetContract,
    ApprovalsContract,
    EffectsContract,
    StepsContract,
    PatchesContract,
    CheckpointsContract,
    LoadContract,
    QueriesContract,
    HistoryContract,
    EventsContract,
    ArtifactsContract,
    MemoryContract,
    PruneContract,
    HintsContract,
    SaveContract,
    ExecuteStepContract,
    ClosingContract,
    FidelityContract,
    NamesContract,
)
"""What every store is held to."""


class StoreContract(
    SubmitContract,
    ClaimContract,
    LeaseContract,
    SweepOfDeadWorkersContract,
    SweepOfTimeContract,
    FencedCommitContract,
    ExpectedCommitContract,
    CommitBatchContract,
    AtomicCommitContract,
    MovesContract,
    WaitsContract,
    BudgetContract,
    ApprovalsContract,
    EffectsContract,
    StepsContract,
    PatchesContract,
    CheckpointsContract,
    LoadContract,
    QueriesContract,
    HistoryContract,
    EventsContract,
    ArtifactsContract,
    MemoryContract,
    PruneContract,
    HintsContract,
    SaveContract,
    ExecuteStepContract,
    ClosingContract,
    FidelityContract,
    NamesContract,
):
    """All topics. The tests of a store are a subclass of this, named ``Test...``."""

    async def test_the_suite_fits_the_capabilities(self, store: StateStore) -> None:
        """A store that several processes share is tested as such."""
        assert isinstance(self, SharedContract) == store.capabilities.multi_process
        assert isinstance(self, ReopenContract) >= store.capabilities.durable


__all__ = ["TOPICS", "ContractBase", "ReopenContract", "SharedContract", "StoreContract"]
