"""Holdfast keeps long-running AI agents alive: their task, every step, state, budget and approvals in a database.

Everything an application needs is exported here. Code that implements a store, or calls one directly, also needs the
types of ``holdfast.model.commit``, ``.operations`` and ``.worker``; modules may still move before 1.0.
"""

import importlib
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__
from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.api.feed import Feed
from holdfast.engine.api.handle import Handle
from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.api.machine.machine import Machine
from holdfast.engine.api.sync.context import SyncContext
from holdfast.engine.api.sync.handle import SyncHandle
from holdfast.engine.api.sync.holdfast import SyncHoldfast, SyncWorker
from holdfast.engine.attempt.context import Child, Context
from holdfast.engine.effects.carried_intents import Intent
from holdfast.engine.manage.artifacts import Artifacts
from holdfast.engine.manage.checkpoints import CheckpointManager, Resumed
from holdfast.engine.manage.fork.ancestry import Origin
from holdfast.engine.manage.memory import Memory
from holdfast.engine.manage.state import AppliedPatch
from holdfast.engine.steps.call import Compensation, current_effect_id
from holdfast.engine.steps.open_transaction import SyncTransaction, Transaction
from holdfast.engine.worker.worker import Worker
from holdfast.model.agent_state import AgentState, ArtifactRef, Constraints, HumanInTheLoop, KnownFact, RiskLevel
from holdfast.model.approval import Approval, ApprovalState, Ask, Decided
from holdfast.model.budget import Budget, Ledger, Meter
from holdfast.model.checkpoints import Checkpoints, CheckpointStrategy
from holdfast.model.clock import Clock, ManualClock
from holdfast.model.codec import decode, encode
from holdfast.model.context_slice import ContextSlice, filter_relevant_state
from holdfast.model.deadline import Deadline
from holdfast.model.doubt import Absent, Decision, Doubt, Happened, Unknown
from holdfast.model.effect import Effect, EffectClass, EffectState, Evidence
from holdfast.model.errors import (
    AgentStuck,
    BudgetExceeded,
    CheckpointExpired,
    CodecError,
    Conflict,
    CursorLost,
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
    NoPlace,
    NotAStore,
    NotFound,
    NotHappened,
    QueueFull,
    ReadOnlyStore,
    Rejected,
    RowDamaged,
    SchemaMismatch,
    StateConflict,
    StepFailed,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreForked,
    StoreReplaced,
    StoreUnavailable,
    TaskCancelled,
    TaskExists,
    TaskFailed,
    WorkerDead,
)
from holdfast.model.failure import Failure, Try
from holdfast.model.feed import FeedEvent, FeedRetention
from holdfast.model.flow_limit import Limit, LimitUse
from holdfast.model.machine import Goto, Reached, Visit
from holdfast.model.memory import FactConflict, effective_confidence
from holdfast.model.message import Message, Reply, ToolCall, ToolSpec, Usage
from holdfast.model.patch import StatePatch, apply
from holdfast.model.pause import Pause
from holdfast.model.queries import Page, Summary, TaskFilter
from holdfast.model.queue_settings import QueueSettings
from holdfast.model.records import Artifact, Checkpoint, Event, MemoryFact
from holdfast.model.retry import GiveUp, Retry, RetryAt
from holdfast.model.schedule import CatchUp, Overlap, Schedule
from holdfast.model.state_diff import Change, ChangeKind, diff
from holdfast.model.step import Step, StepState
from holdfast.model.task import IfExists, NewTask, Submitted, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.store import Capabilities, StateStore, TaskStore, make_store, open_store

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent
    from holdfast.agent.model import Model, ModelError, ModelRefused, ModelUnreachable, Request
    from holdfast.agent.openai_model import OpenAIModel
    from holdfast.agent.prices import Price
    from holdfast.agent.scripted import ScriptedModel
    from holdfast.agent.subagent import SubAgent
    from holdfast.agent.tool import Tool, ToolError, tool
    from holdfast.agent.tool_context import ToolContext
    from holdfast.agent.verifier import Human, Judge

_LATER = {
    "Agent": "agent",
    "Human": "verifier",
    "Judge": "verifier",
    "Model": "model",
    "ModelError": "model",
    "ModelRefused": "model",
    "ModelUnreachable": "model",
    "OpenAIModel": "openai_model",
    "Price": "prices",
    "Request": "model",
    "ScriptedModel": "scripted",
    "SubAgent": "subagent",
    "Tool": "tool",
    "ToolContext": "tool_context",
    "ToolError": "tool",
    "tool": "tool",
}
"""Names of ``holdfast.agent``, and the modules they are in. They are imported on first use, so that a program that only
runs tasks does not wait for pydantic."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - an object of any type
    """Import a name of ``holdfast.agent`` on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.agent.{_LATER[name]}"), name)
    globals()[name] = found
    return found


__all__ = [
    "Absent",
    "Agent",
    "AgentState",
    "AgentStuck",
    "AppliedPatch",
    "Approval",
    "ApprovalState",
    "Artifact",
    "ArtifactRef",
    "Artifacts",
    "Ask",
    "Budget",
    "BudgetExceeded",
    "Capabilities",
    "CatchUp",
    "Change",
    "ChangeKind",
    "Checkpoint",
    "CheckpointExpired",
    "CheckpointManager",
    "CheckpointStrategy",
    "Checkpoints",
    "Child",
    "Clock",
    "CodecError",
    "Compensation",
    "Conflict",
    "Constraints",
    "Context",
    "ContextSlice",
    "CursorLost",
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
    "FactConflict",
    "Failure",
    "Feed",
    "FeedEvent",
    "FeedRetention",
    "GiveUp",
    "Goto",
    "Handle",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "Human",
    "HumanInTheLoop",
    "IfExists",
    "IllegalMove",
    "Intent",
    "InvalidURL",
    "InvalidValue",
    "JournalMismatch",
    "Judge",
    "KeyConflict",
    "KnownFact",
    "LeaseHeld",
    "LeaseLost",
    "Ledger",
    "Limit",
    "LimitUse",
    "Machine",
    "ManualClock",
    "Memory",
    "MemoryFact",
    "Message",
    "Meter",
    "MissingExtra",
    "Model",
    "ModelError",
    "ModelRefused",
    "ModelUnreachable",
    "NewTask",
    "NoPlace",
    "NotAStore",
    "NotFound",
    "NotHappened",
    "OpenAIModel",
    "Origin",
    "Overlap",
    "Page",
    "Pause",
    "Price",
    "QueueFull",
    "QueueSettings",
    "Reached",
    "ReadOnlyStore",
    "Rejected",
    "Reply",
    "Request",
    "Resumed",
    "Retry",
    "RetryAt",
    "RiskLevel",
    "RowDamaged",
    "Schedule",
    "SchemaMismatch",
    "ScriptedModel",
    "StateConflict",
    "StatePatch",
    "StateStore",
    "Step",
    "StepFailed",
    "StepState",
    "StoreBusy",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreForked",
    "StoreReplaced",
    "StoreUnavailable",
    "SubAgent",
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
    "TaskExists",
    "TaskFailed",
    "TaskFilter",
    "TaskState",
    "TaskStore",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolSpec",
    "Transaction",
    "Transition",
    "Try",
    "Unknown",
    "Usage",
    "Visit",
    "Worker",
    "WorkerDead",
    "__version__",
    "apply",
    "current_effect_id",
    "decode",
    "diff",
    "effective_confidence",
    "encode",
    "filter_relevant_state",
    "make_store",
    "open_store",
    "tool",
]
