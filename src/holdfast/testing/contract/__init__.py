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

# ruff: noqa: E402 - the topics are imported after the line that has their assertions rewritten

import pkgutil

import pytest

# Before they are imported: so that a failed assertion of theirs shows what it compared.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from holdfast.store.base import StateStore
from holdfast.testing.contract.approvals import ApprovalsContract
from holdfast.testing.contract.artifacts import ArtifactsContract
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.budget import BudgetContract
from holdfast.testing.contract.claim import ClaimContract
from holdfast.testing.contract.closing import ClosingContract
from holdfast.testing.contract.commit_atomic import AtomicCommitContract
from holdfast.testing.contract.commit_batch import CommitBatchContract
from holdfast.testing.contract.commit_expected import ExpectedCommitContract
from holdfast.testing.contract.commit_fenced import FencedCommitContract
from holdfast.testing.contract.doors import DoorsContract
from holdfast.testing.contract.effects import EffectsContract
from holdfast.testing.contract.events import EventsContract, QuietContract, SubmissionContract
from holdfast.testing.contract.fidelity import FidelityContract
from holdfast.testing.contract.hints import HintsContract
from holdfast.testing.contract.history import HistoryContract
from holdfast.testing.contract.journal import (
    CheckpointsContract,
    LoadContract,
    PatchesContract,
    StepsContract,
)
from holdfast.testing.contract.kinship import KeyFormContract, KinshipContract
from holdfast.testing.contract.lease import LeaseContract
from holdfast.testing.contract.memory import MemoryContract
from holdfast.testing.contract.moves import MovesContract
from holdfast.testing.contract.names import NamesContract
from holdfast.testing.contract.overview import IdsContract, QueuesContract, VitalsContract
from holdfast.testing.contract.prune import PruneContract
from holdfast.testing.contract.queries import QueriesContract
from holdfast.testing.contract.queued import QueuedContract
from holdfast.testing.contract.sharing import ReopenContract, SharedContract
from holdfast.testing.contract.simple import ExecuteStepContract, SaveContract
from holdfast.testing.contract.submit import SubmitContract
from holdfast.testing.contract.sweep_dead_workers import SweepOfDeadWorkersContract
from holdfast.testing.contract.sweep_time import SweepOfTimeContract
from holdfast.testing.contract.undoing import UndoingContract
from holdfast.testing.contract.waits import WaitsContract


class StoreContract(
    SubmitContract,
    ClaimContract,
    LeaseContract,
    SweepOfDeadWorkersContract,
    SweepOfTimeContract,
    UndoingContract,
    FencedCommitContract,
    ExpectedCommitContract,
    CommitBatchContract,
    AtomicCommitContract,
    MovesContract,
    KinshipContract,
    KeyFormContract,
    WaitsContract,
    BudgetContract,
    ApprovalsContract,
    EffectsContract,
    StepsContract,
    PatchesContract,
    CheckpointsContract,
    LoadContract,
    QueriesContract,
    QueuesContract,
    QueuedContract,
    IdsContract,
    VitalsContract,
    HistoryContract,
    EventsContract,
    SubmissionContract,
    QuietContract,
    ArtifactsContract,
    MemoryContract,
    PruneContract,
    HintsContract,
    SaveContract,
    ExecuteStepContract,
    ClosingContract,
    FidelityContract,
    NamesContract,
    DoorsContract,
):
    """All topics. The tests of a store are a subclass of this, named ``Test...``."""

    async def test_the_suite_fits_the_capabilities(self, store: StateStore) -> None:
        """A store that several processes share is tested as such."""
        assert isinstance(self, SharedContract) == store.capabilities.multi_process
        assert isinstance(self, ReopenContract) >= store.capabilities.durable


TOPICS: tuple[type, ...] = StoreContract.__bases__
"""What every store is held to, topic by topic."""

__all__ = ["TOPICS", "ContractBase", "ReopenContract", "SharedContract", "StoreContract"]
