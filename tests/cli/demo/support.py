"""The demo in real processes, and a run of it made up by hand."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.cli.demo.application import FATAL_STEP, GOAL, PLAN, STEPS, TOOLS
from holdfast.cli.demo.ledger import DemoEntry, DemoLedger, What
from holdfast.cli.demo.snapshot import Snapshot
from holdfast.cli.demo.worker_processes import SIGKILLED, DemoWorker
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.budget import Budget, Ledger, Meter, MeterLine
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Worker, WorkerState

PATIENCE = 120.0
"""Seconds: for machines busy with other tests."""

COMMAND = (sys.executable, "-m", "holdfast", "demo")

FIRST, SECOND = 101, 102
"""The pids of the made-up run's workers."""

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
TASK = "0197a5a0-0000-7000-8000-000000000001"


def environment(folder: Path, **also: str) -> dict[str, str]:
    """Return the environment of a demo that leaves its temporary files in a folder of the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "DEMO_"))}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        kept.pop(name, None)
    return kept | {"TMPDIR": str(folder), "TERM": "xterm-256color"} | also


def after(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def good_run() -> Snapshot:
    """Return the last look at a run in which everything held."""
    once = {tool.name for tool in TOOLS if tool.effect is EffectClass.ONCE}
    return Snapshot(
        at=after(12),
        task=Task(
            id=TASK,
            name="deploy",
            queue="demo",
            state=TaskState.COMPLETED,
            result="billing 1.2 is live.",
            created_at=BEGAN,
            deaths=1,
            fence=4,
        ),
        steps=(_step("update_plan", 0, fence=1), *(_step(name, number, _fence(name)) for number, name in _numbered())),
        effects=tuple(_effect(name, number) for number, name in _numbered() if name in once),
        approvals=(
            Approval(
                id="approval-1",
                task_id=TASK,
                question='May the agent call switch_traffic(service="billing", version="1.2")?',
                step_key="switch_traffic:10.0",
                risk="external_action",
                arguments_hash="81defc9f468ea488",
                state=ApprovalState.APPROVED,
                decided_by="ann",
                note="go ahead",
                created_at=after(9.2),
                decided_at=after(10),
            ),
        ),
        doubts=(),
        history=_history(),
        workers=(_worker(FIRST), _worker(SECOND)),
        state=AgentState(goal=GOAL, plan=tuple(PLAN.values()), completed_steps=tuple(PLAN.values())),
        budget=Ledger({**Ledger.of(Budget(max_steps=30)).lines, Meter.STEPS: MeterLine(30, 23)}),
        world=DemoLedger(
            (
                *(DemoEntry(FIRST, What.DID, name, effect_id(name)) for name in STEPS[:8]),
                DemoEntry(SECOND, What.ASKED, FATAL_STEP, effect_id(FATAL_STEP)),
                *(DemoEntry(SECOND, What.DID, name, effect_id(name)) for name in STEPS[8:]),
            )
        ),
        processes=(DemoWorker("worker-1", FIRST, SIGKILLED), DemoWorker("worker-2", SECOND, 0)),
    )


def effect_id(name: str) -> str:
    return f"{STEPS.index(name):08d}-effect"


def changed_effect(now: Snapshot, effect: Effect) -> Snapshot:
    """Return the run with another record of an effect."""
    kept = tuple(effect if one.effect_id == effect.effect_id else one for one in now.effects)
    return replace(now, effects=kept)


def _numbered() -> list[tuple[int, str]]:
    return list(enumerate(STEPS, 1))


def _fence(name: str) -> int:
    number = STEPS.index(name) + 1
    return 1 if number < 8 else 3 if number < 10 else 4


def _step(name: str, number: int, fence: int) -> Step:
    return Step(
        key=f"{name}:{number}.0",
        kind="tool",
        position=number + 1,
        state=StepState.COMPLETED,
        fence=fence,
        finished_at=after(number if number < 8 else number + 0.1),
    )


def _effect(name: str, number: int) -> Effect:
    effect = Effect(
        effect_id=effect_id(name),
        step_key=f"{name}:{number}.0",
        effect_class=EffectClass.ONCE,
        state=EffectState.DONE,
        fence=1 if name == FATAL_STEP else _fence(name),
        updated_at=after(number),
    )
    if name != FATAL_STEP:
        return effect
    return replace(effect, result=b'"3 replicas are up"', note="its worker was lost before it could report")


def _worker(pid: int) -> Worker:
    return Worker(
        id=f"incarnation-{pid}",
        label=f"worker-{pid - 100}",
        lease=2.0,
        state=WorkerState.DEAD,
        claims=1,
        details={"pid": pid, "queues": ["demo"]},
        started_at=BEGAN,
        seen_at=after(11),
    )


def _history() -> tuple[Transition, ...]:
    pending, running, waiting = TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING
    moves = (
        (None, pending, "submitted", "submit", 0, 0),
        (pending, running, "claimed", f"incarnation-{FIRST}", 1, 0.5),
        (running, pending, "its worker died", "sweep", 2, 7.8),
        (pending, running, "claimed", f"incarnation-{SECOND}", 3, 7.9),
        (running, waiting, "waits for a decision", f"incarnation-{SECOND}", 3, 9.3),
        (waiting, pending, "decided", "ann", 3, 10),
        (pending, running, "claimed", f"incarnation-{SECOND}", 4, 10.05),
        (running, TaskState.COMPLETED, "work done", f"incarnation-{SECOND}", 4, 11),
    )
    return tuple(
        Transition(
            task_id=TASK,
            number=number,
            from_state=source,
            to_state=target,
            reason=reason,
            actor=actor,
            fence=fence,
            at=after(at),
        )
        for number, (source, target, reason, actor, fence, at) in enumerate(moves, 1)
    )
