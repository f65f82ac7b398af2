"""The public names: adding one is a decision, losing one is a break."""

from __future__ import annotations

import subprocess
import sys

import holdfast


def test_the_public_names_are_these() -> None:
    assert set(holdfast.__all__) == EXPORTED
    assert list(holdfast.__all__) == sorted(holdfast.__all__)
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)


def test_importing_holdfast_brings_no_database_driver_and_no_front_end() -> None:
    """What a process does not use it does not load."""
    heavy = {"apsw", "psycopg", "pydantic", "typer", "rich"}
    code = "import sys, holdfast; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert heavy.isdisjoint(loaded)


EXPORTED = {
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
}
