"""The contract every store keeps, as a test suite that any store can be held to.

A store's author writes one module of tests; pytest and pytest-asyncio do the rest::

    class TestMyStore(StoreContract):
        @pytest_asyncio.fixture
        async def store(self, clock):
            async with MyStore(clock=clock) as store:
                yield store

A store that outlives its process also takes ``ReopenContract``, one that several processes share ``SharedContract``,
and both need the fixture ``another_store``. One topic alone can be had by its own class.

Modules:

_support.py            Shorthand for the tests: a task, a worker, an attempt with numbered Commits, a Commit from
                       outside
approvals.py           Approvals: bound to exact arguments, decided once, used once
artifacts.py           Artifacts: bytes under their own hash, stored once, read in parts
base.py                What every topic of the contract shares: its fixtures, and how a store's author fills them
budget.py              Budgets: reserved before a call, settled after it, never overspent and never counted twice
claim.py               claim: who gets which task, in which order
closing.py             Opening and closing: a store that is not open answers nothing
commit_atomic.py       All of a Commit or nothing of it
commit_batch.py        Many Commits in one call: as if they came one after the other
commit_expected.py     Commits from outside any lease: what they expect must still be true
commit_fenced.py       Commits of a worker: fenced, numbered, and safe to send again
doors.py               What is refused at the door: bad input gets an InvalidValue that says what is wrong, and changes
                       nothing
effects.py             Effects: what is known about them moves along one table, and doubt is never hidden
events.py              Events: facts on a channel, numbered, kept, read from any position
fidelity.py            Fidelity: what comes back is exactly what went in
hints.py               Hints: that something changed
history.py             History: every move of a task, first to last
journal.py             The journal: steps, patches, checkpoints, and everything a worker needs to go on
kinship.py             Kinship: a parent begins its ended children again; and the form of keys that a task keeps over
                       all its rounds
lease.py               Leases: one for each worker, renewed by its heartbeat, and over for good when it is over
memory.py              Memory: facts, stored under the condition that nobody was faster, listed, searched and forgotten
moves.py               Moves: every pair of states, held to the one table of allowed moves
names.py               Names: whatever can be printed can be a name, everywhere, and is only ever itself
overview.py            What a person asks of a whole store: its queues, an id of which they know a few characters, how
                       it is doing
prune.py               prune: what ended long ago goes, with everything that belongs to it
queries.py             Queries: filters, pages, counts
queued.py              queued: what waits, in the order in which it comes up
sharing.py             Stores that outlive their process, and stores that several processes share
simple.py              The simple interface: save, get, list_by_state, execute_step
submit.py              submit: tasks are stored once, however often they are sent
sweep_dead_workers.py  sweep: tasks are taken back from workers that fell silent
sweep_time.py          sweep: timers, delays, deadlines and expiries, in bounded batches
undoing.py             Undoing: a task whose steps are being compensated is past caring for its deadline
waits.py               Waiting: what is awaited is a stored fact, so it is never missed, whichever came first
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
