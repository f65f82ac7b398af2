"""Holdfast keeps long-running AI agents alive: their task, every step, state, budget and approvals in a database.

Everything an application needs is exported here. Whoever writes a store, or works with one verb by verb, also needs the
types of ``holdfast.model.commit``, ``.operations`` and ``.worker``; modules may still move before 1.0.
"""

from holdfast._version import __version__
from holdfast.engine.calls import Compensation, current_effect_id
from holdfast.engine.carrying import Intent
from holdfast.engine.context import Child, Context
from holdfast.engine.definition import TaskDefinition
from holdfast.engine.handle import Handle
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.machine import Machine
from holdfast.engine.sync import SyncHandle, SyncHoldfast, SyncWorker
from holdfast.engine.sync_context import SyncContext
from holdfast.engine.transacting import SyncTransaction
from holdfast.engine.worker import Worker
from holdfast.model.agent_state import AgentState, ArtifactRef, Constraints, HumanInTheLoop, KnownFact, RiskLevel
from holdfast.model.approval import Approval, ApprovalState, Ask, Decided
from holdfast.model.budget import Budget, Ledger, Meter
from holdfast.model.clock import Clock, ManualClock
from holdfast.model.codec import decode, encode
from holdfast.model.deadline import Deadline
from holdfast.model.doubt import Absent, Decision, Doubt, Happened, Unknown
from holdfast.model.effect import Effect, EffectClass, EffectState, Evidence
from holdfast.model.errors import (
    BudgetExceeded,
    CodecError,
    Conflict,
    DeadlineExceeded,
    DuplicateName,
    EffectGivenUp,
    HoldfastError,
    IllegalMove,
    InvalidURL,
    InvalidValue,
    JournalMismatch,
    KeyConflict,
    LeaseHeld,
    LeaseLost,
    MissingExtra,
    NotAStore,
    NotFound,
    NotHappened,
    ReadOnlyStore,
    Rejected,
    SchemaMismatch,
    StepFailed,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    TaskCancelled,
    TaskFailed,
    WorkerDead,
)
from holdfast.model.failure import Failure, Try
from holdfast.model.machine import Goto, Reached, Visit
from holdfast.model.patch import StatePatch, apply
from holdfast.model.queries import Page, Summary, TaskFilter
from holdfast.model.records import Artifact, Checkpoint, Event, MemoryFact
from holdfast.model.retry import GiveUp, Retry, RetryAt
from holdfast.model.state_diff import diff
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask, Submitted, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.store import Capabilities, StateStore, make_store, open_store
from holdfast.store.transaction import Transaction

__all__ = [
    "Absent",
    "AgentState",
    "Approval",
    "ApprovalState",
    "Artifact",
    "ArtifactRef",
    "Ask",
    "Budget",
    "BudgetExceeded",
    "Capabilities",
    "Checkpoint",
    "Child",
    "Clock",
    "CodecError",
    "Compensation",
    "Conflict",
    "Constraints",
    "Context",
    "Deadline",
    "DeadlineExceeded",
    "Decided",
    "Decision",
    "Doubt",
    "DuplicateName",
    "Effect",
    "EffectClass",
    "EffectGivenUp",
    "EffectState",
    "Event",
    "Evidence",
    "Failure",
    "GiveUp",
    "Goto",
    "Handle",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "HumanInTheLoop",
    "IllegalMove",
    "Intent",
    "InvalidURL",
    "InvalidValue",
    "JournalMismatch",
    "KeyConflict",
    "KnownFact",
    "LeaseHeld",
    "LeaseLost",
    "Ledger",
    "Machine",
    "ManualClock",
    "MemoryFact",
    "Meter",
    "MissingExtra",
    "NewTask",
    "NotAStore",
    "NotFound",
    "NotHappened",
    "Page",
    "Reached",
    "ReadOnlyStore",
    "Rejected",
    "Retry",
    "RetryAt",
    "RiskLevel",
    "SchemaMismatch",
    "StatePatch",
    "StateStore",
    "Step",
    "StepFailed",
    "StepState",
    "StoreBusy",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "Submitted",
    "Summary",
    "SyncContext",
    "SyncHandle",
    "SyncHoldfast",
    "SyncTransaction",
    "SyncWorker",
    "Task",
    "TaskCancelled",
    "TaskDefinition",
    "TaskFailed",
    "TaskFilter",
    "TaskState",
    "Transaction",
    "Transition",
    "Try",
    "Unknown",
    "Visit",
    "Worker",
    "WorkerDead",
    "__version__",
    "apply",
    "current_effect_id",
    "decode",
    "diff",
    "encode",
    "make_store",
    "open_store",
]
