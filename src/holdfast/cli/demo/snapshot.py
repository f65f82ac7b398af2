"""The demo at one moment, from the store, the ledger and the operating system. All that is shown is read here."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from holdfast import Handle
from holdfast.cli.demo import ledger
from holdfast.cli.demo.application import PLAN, hold
from holdfast.cli.demo.ledger import DemoLedger
from holdfast.cli.demo.worker_processes import DemoWorker, DemoWorkers
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.budget import Ledger
from holdfast.model.doubt import Doubt
from holdfast.model.effect import Effect, EffectState
from holdfast.model.errors import Conflict
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Worker

_WAS_IN_DOUBT = frozenset({EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look at everything."""

    at: datetime
    """By the store's clock."""
    task: Task
    steps: tuple[Step, ...]
    effects: tuple[Effect, ...]
    approvals: tuple[Approval, ...]
    doubts: tuple[Doubt, ...]
    history: tuple[Transition, ...]
    workers: tuple[Worker, ...]
    """Those the demo started."""
    state: AgentState
    budget: Ledger
    world: DemoLedger
    processes: tuple[DemoWorker, ...]

    def step(self, name: str) -> Step | None:
        """Return the journal's line of a tool's call."""
        return next((step for step in self.steps if step.kind == "tool" and _tool(step.key) == name), None)

    def effect(self, name: str) -> Effect | None:
        """Return the record of a tool's effect; effects that may be repeated have none."""
        return next((effect for effect in self.effects if _tool(effect.step_key) == name), None)

    def effect_id(self, name: str) -> str | None:
        """Return under which id a tool touched the world: from its record, or else from the ledger."""
        effect = self.effect(name)
        return next(iter(self.world.effect_ids(name)), None) if effect is None else effect.effect_id

    def is_completed(self, name: str) -> bool:
        """Return whether the journal has the result of a tool's call."""
        step = self.step(name)
        return step is not None and step.state is StepState.COMPLETED

    def is_current(self, name: str) -> bool:
        """Return whether the agent is at this step of its plan."""
        return self.state.current_step == PLAN[name] and PLAN[name] not in self.state.completed_steps

    def approval(self, name: str) -> Approval | None:
        """Return what a person was asked before a tool's call."""
        return next((approval for approval in self.approvals if _tool(approval.step_key) == name), None)

    def holder(self, fence: int) -> Worker | None:
        """Return the worker that held the task under a fence."""
        claims = {move.fence: move.actor for move in self.history if move.to_state is TaskState.RUNNING}
        return next((worker for worker in self.workers if worker.id == claims.get(fence)), None)

    def label(self, pid: int) -> str:
        """Name a process."""
        return next((member.label for member in self.processes if member.pid == pid), f"pid {pid}")

    def lease_left(self, worker: Worker) -> float:
        """Return the seconds until a worker that stays silent is taken for dead."""
        return max(0.0, worker.lease - (self.at - worker.seen_at).total_seconds())


def was_in_doubt(effect: Effect) -> bool:
    """Return whether an effect was in doubt for a while.

    Once it is settled, its record has a result that did not come from the call itself.
    """
    return effect.state in _WAS_IN_DOUBT or effect.result is not None


async def look(handle: Handle[str], processes: DemoWorkers) -> Snapshot:
    """Read everything once. The parts are read one after the other, so a later part may be newer."""
    store, labels = hold.store, {member.label for member in processes.members}
    task = await handle.task()
    state = AgentState(goal="")
    with suppress(Conflict):  # it has none before a worker has begun
        state = await hold.state(handle)
    return Snapshot(
        task=task,
        steps=tuple(await store.steps(handle.id)),
        effects=tuple(await store.effects(task_id=handle.id)),
        approvals=tuple(await hold.approvals(handle, states=tuple(ApprovalState))),
        doubts=tuple(await hold.doubts(handle)),
        history=tuple(await store.history(handle.id)),
        workers=tuple(
            worker
            for worker in await store.workers()
            if worker.label in labels and worker.details.get("queues") == [task.queue]
        ),
        state=state,
        budget=await hold.budget(handle),
        world=ledger.read(processes.ledger),
        processes=processes.members,
        at=hold.services.time.now(),
    )


def _tool(key: str) -> str:
    """Return which tool a step is a call of: apply_changes:9.0."""
    return key.partition(":")[0]
