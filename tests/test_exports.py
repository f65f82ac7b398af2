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
    "Try",
    "Failure",
    "TaskFailed",
    "TaskCancelled",
    "StepFailed",
    "JournalMismatch",
    "DuplicateName",
    "DeadlineExceeded",
    "Worker",
    "SyncContext",
    "SyncHandle",
    "SyncHoldfast",
    "SyncWorker",
    "Machine",
    "Goto",
    "Reached",
    "Visit",
    "Holdfast",
    "Handle",
    "TaskDefinition",
    "Context",
    "Child",
    "AgentState",
    "Approval",
    "ApprovalState",
    "Artifact",
    "ArtifactRef",
    "Budget",
    "BudgetExceeded",
    "Capabilities",
    "Checkpoint",
    "Clock",
    "CodecError",
    "Conflict",
    "Constraints",
    "Deadline",
    "Effect",
    "EffectClass",
    "EffectState",
    "Event",
    "Evidence",
    "GiveUp",
    "HoldfastError",
    "HumanInTheLoop",
    "IllegalMove",
    "InvalidURL",
    "InvalidValue",
    "KeyConflict",
    "KnownFact",
    "LeaseHeld",
    "LeaseLost",
    "Ledger",
    "ManualClock",
    "MemoryFact",
    "Meter",
    "MissingExtra",
    "NewTask",
    "NotAStore",
    "NotFound",
    "Page",
    "ReadOnlyStore",
    "Retry",
    "RetryAt",
    "RiskLevel",
    "SchemaMismatch",
    "StatePatch",
    "StateStore",
    "Step",
    "StepState",
    "StoreBusy",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "Submitted",
    "Summary",
    "Task",
    "TaskFilter",
    "TaskState",
    "Transition",
    "WorkerDead",
    "__version__",
    "apply",
    "decode",
    "diff",
    "encode",
    "make_store",
    "open_store",
}
