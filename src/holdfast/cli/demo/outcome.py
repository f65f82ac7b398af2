"""The result of the demo: read back from the store, from the ledger and from the operating system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.cli.demo.application import FATAL_STEP, STEPS, TOOLS
from holdfast.cli.demo.ledger import What
from holdfast.cli.demo.snapshot import Snapshot, was_in_doubt
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.transitions import TaskState

_DECLARED = {tool.name: tool.effect for tool in TOOLS}


@dataclass(frozen=True, slots=True)
class Touch:
    """What one step did to the world: by its record, and by the ledger."""

    step: str
    declared: EffectClass
    """How often it may be done: pure, idempotent or once."""
    effect_id: str | None
    state: str
    """Of the effect; of the step, where the call may be repeated and has no record of its effect."""
    pids: tuple[int, ...]
    """The processes that did it, once for each time."""
    workers: tuple[str, ...]

    @property
    def count(self) -> int:
        """How often it happened, according to the ledger."""
        return len(self.pids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The last look at everything, when all workers were gone."""

    last: Snapshot
    seconds: float

    @property
    def kills(self) -> int:
        """How many workers were ended by SIGKILL, according to the operating system."""
        return sum(member.was_killed for member in self.last.processes)

    @property
    def takeovers(self) -> int:
        """How often the task was taken from a dead worker."""
        return self.last.task.deaths

    @property
    def doubts(self) -> list[Effect]:
        """The effects that were in doubt for a while: it was not known whether they had happened."""
        return [effect for effect in self.last.effects if was_in_doubt(effect)]

    @property
    def approvals(self) -> list[Approval]:
        """What a person agreed to."""
        return [approval for approval in self.last.approvals if approval.state is ApprovalState.APPROVED]

    @property
    def touches(self) -> list[Touch]:
        """What each step did to the world."""
        return [self._touch(name) for name in STEPS]

    @property
    def duplicates(self) -> list[Touch]:
        """What happened more than once."""
        return [touch for touch in self.touches if touch.count > 1]

    @property
    def complaints(self) -> list[str]:
        """The promises of the demo that did not hold; empty if all did."""
        return list(self._complaints())

    @property
    def is_good(self) -> bool:
        """Whether all of it held."""
        return not self.complaints

    def facts(self) -> dict[str, Any]:
        """Return it as plain data."""
        last = self.last
        return {
            "task_id": last.task.id,
            "state": last.task.state,
            "result": last.task.result,
            "kills": self.kills,
            "takeovers": self.takeovers,
            "approvals": [
                {
                    "question": approval.question,
                    "arguments_hash": approval.arguments_hash,
                    "state": approval.state,
                    "decided_by": approval.decided_by,
                }
                for approval in last.approvals
            ],
            "doubts": [
                {
                    "effect_id": effect.effect_id,
                    "step": effect.step_key,
                    "why": effect.note,
                    "outcome": "happened" if effect.state is EffectState.DONE else effect.state,
                    "settled_by": self._settled_by(effect),
                }
                for effect in self.doubts
            ],
            "effects": [
                {
                    "step": touch.step,
                    "declared": touch.declared,
                    "effect_id": touch.effect_id,
                    "state": touch.state,
                    "count_in_ledger": touch.count,
                    "workers": list(touch.workers),
                }
                for touch in self.touches
            ],
            "duplicates": len(self.duplicates),
            "budget": {
                str(meter): {"limit": line.limit, "spent": line.spent}
                for meter, line in last.budget.lines.items()
                if line.limit is not None
            },
            "workers": {
                "killed": next((member.pid for member in last.processes if member.was_killed), None),
                "finisher": self._finisher,
            },
            "seconds": round(self.seconds, 1),
            "complaints": self.complaints,
        }

    @property
    def _finisher(self) -> int | None:
        holder = self.last.holder(self.last.task.fence)
        return None if holder is None else int(holder.details["pid"])

    def _touch(self, name: str) -> Touch:
        last = self.last
        step, effect, pids = last.step(name), last.effect(name), last.world.pids(What.DID, name)
        known = effect or step
        return Touch(
            step=name,
            declared=_DECLARED[name],
            effect_id=last.effect_id(name),
            state="not begun" if known is None else known.state.value,
            pids=tuple(pids),
            workers=tuple(map(last.label, pids)),
        )

    def _settled_by(self, effect: Effect) -> str | None:
        """Return what settled a doubt. The demo asks no person about doubts, so it was a look into the ledger."""
        asked = any(
            entry.what is What.ASKED and entry.effect_id == effect.effect_id for entry in self.last.world.entries
        )
        return "reconcile" if effect.state is EffectState.DONE and asked else None

    def _complaints(self) -> Iterator[str]:
        task, doubts = self.last.task, self.doubts
        if task.state is not TaskState.COMPLETED:
            yield f"the task is {task.state}, not completed"
        if self.kills != 1:
            yield f"{self.kills} workers were ended by SIGKILL, not one"
        if not self.takeovers:
            yield "no other worker took the task over"
        if FATAL_STEP not in {effect.step_key.partition(":")[0] for effect in doubts}:
            yield f"the store knows of no doubt about {FATAL_STEP}, which the kill should have left"
        for effect in doubts:
            if self._settled_by(effect) is None:
                yield f"the doubt about {effect.step_key} was not settled by its reconcile: it is {effect.state}"
        if not self.approvals:
            yield "no approval was given"
        for touch in self.touches:
            if touch.count != 1:
                by = f", by {', '.join(touch.workers)}" if touch.workers else ""
                yield f"{touch.step} is in the ledger {touch.count} times, not once{by}"
