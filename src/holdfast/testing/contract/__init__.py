"""The contract of every store, as a test suite for any store.

A store's author writes one module of tests; pytest and pytest-asyncio do the rest::

    class TestMyStore(StoreContract):
        @pytest_asyncio.fixture
        async def store(self, clock):
            async with MyStore(clock=clock) as store:
                yield store

A store that outlives its process also inherits ``ReopenContract``, a store that several processes share also
``SharedContract``; both need the fixture ``another_store``. Each topic also has a class of its own.

Modules:

_support.py            Helpers for the tests: a task, a worker, an attempt with numbered Commits, a Commit from outside
approvals.py           Approvals: bound to exact arguments, decided once, used once
artifacts.py           Artifacts: bytes under their own hash, stored once, read in parts
bad_input.py           Bad input: it raises an InvalidValue that names what is wrong, and changes nothing
base.py                The fixtures that all topics of the contract share, and how a store's author provides them
budget.py              Budgets: reserved before a call, settled after it, never overspent and never counted twice
children.py            Children: a parent restarts its ended children; and a task keeps its form of keys over all its
                       rounds
claim.py               claim: who gets which task, in which order
closing.py             Opening and closing: a store that is not open answers nothing
commit_atomic.py       All of a Commit is applied, or nothing of it
commit_batch.py        Many Commits in one call: as if they came one after the other
commit_expected.py     Commits from outside any lease: what they expect must still be true
commit_fenced.py       Commits of a worker: fenced, numbered, and safe to send again
effects.py             Effects: their states follow one table, and doubt is never hidden
events.py              Events: facts on a channel, numbered, kept, read from any position
feed.py                The feed: everything that happens, once and in order, from any place that is kept
fidelity.py            Fidelity: stored values are returned exactly as they were given
full_queues.py         Full queues: what would go beyond the limit of a queue is refused, and nothing of it is stored
hints.py               Hints that something changed
history.py             History: every move of a task, first to last
journal.py             The journal: steps, patches, checkpoints, and everything a worker needs to continue
labels.py              Labels: stored with the task, and every listing filters by them
lease.py               Leases: one for each worker, renewed by its heartbeat, and final when it ends
limit_lines.py         Lines of limits: which task is let out next, what brings a task back into its line, and what
                       leaves it
limits.py              Limits of tasks: a claim takes all keys of a task or none, and whatever ends a task's work gives
                       them back
memory.py              Memory: facts, stored only if their subject is unchanged, listed, searched and forgotten
moves.py               Moves: every pair of states, checked against the one table of allowed moves
names.py               Names: any printable text can be a name, everywhere, and equals only itself
overview.py            What a person asks of a whole store: its queues, an id from a few of its characters, its health
pauses.py              Pauses: nothing new begins of a queue, a name or a task until it is unpaused
permits.py             Permits of steps: in the order of their line, all keys or none, and given back, also after a
                       death
prune.py               prune: tasks that ended long ago are deleted, with everything that belongs to them
queries.py             Queries: filters, pages, counts
queue_places.py        Places: no more tasks of a queue are at work than it allows, over all workers together
queued.py              queued: the tasks in the queue, in the order in which they will be claimed
rates.py               Limits in a time: rates, what closes a limit for a time, and pauses of limits
replacement.py         Submissions that meet a task with their key: replaced while it waits for its first claim, and
                       debounced
retention.py           Retention: ended tasks that their queue keeps no longer are deleted by sweeps, in bounded batches
schedules.py           Schedules: changed only as they were seen, together with the tasks that they submit
sharing.py             Stores that outlive their process, and stores that several processes share
simple.py              The simple interface: save, get, list_by_state, execute_step
submit.py              submit: a task is stored once, even if it is sent many times
sweep_dead_workers.py  sweep: tasks are taken back from workers that fell silent
sweep_time.py          sweep: timers, delays, deadlines and expiries, in bounded batches
transactions.py        Submissions within a transaction: there with everything else that it writes, or not at all
turns.py               Turns: the tasks of a fair queue are claimed by turns of the values of a label
undoing.py             Undoing: the deadline no longer counts for a task whose steps are being compensated
waits.py               Waiting: a task waits for a stored fact, so it never misses it, in either order
"""

# ruff: noqa: E402 - the topics must be imported after pytest is asked to rewrite their assertions

import pkgutil

import pytest

# Before the import, so that a failed assertion shows the values it compared.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from holdfast.store.base import StateStore
from holdfast.testing.contract.approvals import ApprovalsContract
from holdfast.testing.contract.artifacts import ArtifactsContract
from holdfast.testing.contract.bad_input import BadInputContract
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.budget import BudgetContract
from holdfast.testing.contract.children import ChildrenContract, KeyFormContract
from holdfast.testing.contract.claim import ClaimContract
from holdfast.testing.contract.closing import ClosingContract
from holdfast.testing.contract.commit_atomic import AtomicCommitContract
from holdfast.testing.contract.commit_batch import CommitBatchContract
from holdfast.testing.contract.commit_expected import ExpectedCommitContract
from holdfast.testing.contract.commit_fenced import FencedCommitContract
from holdfast.testing.contract.effects import EffectsContract
from holdfast.testing.contract.events import EventsContract, QuietContract, SubmissionContract
from holdfast.testing.contract.feed import FeedContract
from holdfast.testing.contract.fidelity import FidelityContract
from holdfast.testing.contract.full_queues import FullQueuesContract
from holdfast.testing.contract.hints import HintsContract
from holdfast.testing.contract.history import HistoryContract
from holdfast.testing.contract.journal import (
    CheckpointsContract,
    LoadContract,
    PatchesContract,
    StepsContract,
)
from holdfast.testing.contract.labels import LabelsContract
from holdfast.testing.contract.lease import LeaseContract
from holdfast.testing.contract.limit_lines import LimitLinesContract
from holdfast.testing.contract.limits import LimitsContract
from holdfast.testing.contract.memory import MemoryContract
from holdfast.testing.contract.moves import MovesContract
from holdfast.testing.contract.names import NamesContract
from holdfast.testing.contract.overview import IdsContract, QueuesContract, VitalsContract
from holdfast.testing.contract.pauses import PausesContract
from holdfast.testing.contract.permits import PermitsContract
from holdfast.testing.contract.prune import PruneContract
from holdfast.testing.contract.queries import QueriesContract
from holdfast.testing.contract.queue_places import PlacesContract
from holdfast.testing.contract.queued import QueuedContract
from holdfast.testing.contract.rates import RatesContract
from holdfast.testing.contract.replacement import DebounceContract, ReplaceContract
from holdfast.testing.contract.retention import RetentionContract
from holdfast.testing.contract.schedules import SchedulesContract
from holdfast.testing.contract.sharing import ReopenContract, SharedContract
from holdfast.testing.contract.simple import ExecuteStepContract, SaveContract
from holdfast.testing.contract.submit import SubmitContract
from holdfast.testing.contract.sweep_dead_workers import SweepOfDeadWorkersContract
from holdfast.testing.contract.sweep_time import SweepOfTimeContract
from holdfast.testing.contract.transactions import TransactionContract
from holdfast.testing.contract.turns import TurnsContract
from holdfast.testing.contract.undoing import UndoingContract
from holdfast.testing.contract.waits import WaitsContract


class StoreContract(
    SubmitContract,
    ReplaceContract,
    DebounceContract,
    TransactionContract,
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
    ChildrenContract,
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
    LabelsContract,
    QueuesContract,
    QueuedContract,
    IdsContract,
    VitalsContract,
    HistoryContract,
    EventsContract,
    SubmissionContract,
    QuietContract,
    SchedulesContract,
    ArtifactsContract,
    MemoryContract,
    PausesContract,
    FullQueuesContract,
    PlacesContract,
    TurnsContract,
    LimitsContract,
    LimitLinesContract,
    RatesContract,
    PermitsContract,
    RetentionContract,
    PruneContract,
    HintsContract,
    FeedContract,
    SaveContract,
    ExecuteStepContract,
    ClosingContract,
    FidelityContract,
    NamesContract,
    BadInputContract,
):
    """All topics. The tests of a store are a subclass of this, named ``Test...``."""

    async def test_the_suite_fits_the_capabilities(self, store: StateStore) -> None:
        """A store that several processes share is also tested by SharedContract."""
        assert isinstance(self, SharedContract) == store.capabilities.multi_process
        assert isinstance(self, ReopenContract) >= store.capabilities.durable


TOPICS: tuple[type, ...] = StoreContract.__bases__
"""The topics of the contract of every store."""

__all__ = ["TOPICS", "ContractBase", "ReopenContract", "SharedContract", "StoreContract"]
