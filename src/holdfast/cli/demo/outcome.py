"""What the demo came to: read back from the store, and from the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.cli.demo.application import STEPS
from holdfast.cli.demo.ledger import Ledger, What
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState, Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The task's record, journal and moves, and what its workers really did."""

    task: Task
    steps: list[Step]
    history: list[Transition]
    ledger: Ledger
    killed: int
    """The pid of the worker that was killed."""
    finisher: int
    """The pid of the one that finished."""

    @property
    def done_twice(self) -> list[str]:
        """The steps whose work was done more than once."""
        return [name for name in STEPS if len(self.ledger.pids(What.DID, name)) > 1]

    @property
    def is_good(self) -> bool:
        """Whether the task was finished and nothing was done twice."""
        return self.task.state is TaskState.COMPLETED and not self.done_twice

    def facts(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "task_id": self.task.id,
            "state": self.task.state,
            "result": self.task.result,
            "takeovers": self.task.deaths,
            "fence": self.task.fence,
            "workers": {"killed": self.killed, "finisher": self.finisher},
            "steps": [
                {
                    "step": step.key,
                    "state": step.state,
                    "fence": step.fence,
                    "begun_by": self.ledger.pids(What.BEGAN, step.key),
                    "done_by": self.ledger.pids(What.DID, step.key),
                    "replayed_by": self.ledger.replayed(step.key),
                }
                for step in self.steps
            ],
            "done_twice": self.done_twice,
        }
