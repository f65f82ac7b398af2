"""Trace: the history of a task in a sandbox, for a test to check."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from holdfast.model.task import Task
from holdfast.model.transitions import TaskState, Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The history of one task in the sandbox so far."""

    state: TaskState
    states: tuple[TaskState, ...]
    """Every state it passed through, in order."""
    reasons: tuple[str, ...]
    """The reason for each of these states."""
    runs: Counter[str]
    """How often the function of each step was called, by the step's key."""
    replays: Counter[str]
    """How often the journal returned the result instead."""
    deaths: int
    """How many workers died while running it."""
    took: timedelta
    """The sandbox's time from its submission to its last change of state."""


class Recorder:
    """Counts what no store records."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.commits = 0
        self._runs: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._replays: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def ran(self, task_id: str, step: str) -> None:
        """A step's function is being called."""
        self._runs[task_id][step] += 1

    def replayed(self, task_id: str, step: str) -> None:
        """A completed line of the journal was read; only lines of steps that ran are counted, not those of waits."""
        if step in self._runs[task_id]:
            self._replays[task_id][step] += 1

    def sent(self) -> int:
        """Number a Commit."""
        self.commits += 1
        return self.commits

    @property
    def steps(self) -> list[str]:
        """Every step that ran, in the order of its first run."""
        return list(dict.fromkeys(step for runs in self._runs.values() for step in runs))

    def trace(self, task: Task, history: Iterable[Transition]) -> Trace:
        """Return the trace of a task."""
        passed = sorted(history, key=lambda transition: transition.number)
        return Trace(
            state=task.state,
            states=tuple(transition.to_state for transition in passed),
            reasons=tuple(transition.reason for transition in passed),
            runs=Counter(self._runs[task.id]),
            replays=Counter(self._replays[task.id]),
            deaths=task.deaths,
            took=passed[-1].at - passed[0].at,
        )
