"""The life of a task: the one table of allowed moves.

The engine, both SQL schemas (a test compares their CHECK constraints with it) and the diagram in the docs
are driven by ``MOVES``, and by ``MOVES_BY_PARENT`` for the one move that only a parent makes. Nothing else decides
whether a task may go from one state to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from holdfast.model.errors import IllegalMove


class TaskState(StrEnum):
    """Where a task stands, and who moves it on."""

    PENDING = "pending"
    """In the queue. A worker's claim moves it to running; its deadline fails it."""

    RUNNING = "running"
    """Leased by one worker, whose Commits move it on. When that lease expires, whoever sweeps next returns it
    to pending. A task saved by hand may be running with no lease; then only a person moves it."""

    WAITING = "waiting"
    """Waits for an approval, an answer, a timer, an event, a child or more budget, and holds no worker.
    Whoever brings the awaited thing moves it to pending; its deadline fails it."""

    REVIEW = "review"
    """The work is done and a verifier looks at it, under the same or a new lease."""

    COMPLETED = "completed"
    """Done and, if it has a verifier, verified. Final, unless its parent begins it again."""

    FAILED = "failed"
    """Given up. Final until a person retries or resumes it, or its parent begins it again."""

    CANCELLED = "cancelled"
    """Stopped by a person or a parent. Final, unless its parent begins it again."""

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended. A person may still revive a failed task, and a parent any child."""
        return self in TERMINAL


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})

KEEPS_LEASE = frozenset({TaskState.RUNNING, TaskState.REVIEW})
"""Where a worker may move its task and go on holding it; with any other Move it lets go."""
OPEN = frozenset(TaskState) - TERMINAL

_P, _R, _W, _V = TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING, TaskState.REVIEW
_C, _F, _X = TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED

MOVES: Mapping[TaskState, Mapping[TaskState, str]] = MappingProxyType(
    {
        _P: {_R: "claimed", _F: "deadline passed", _X: "cancelled"},
        _R: {
            _P: "retry later, or handed back, or its worker died",
            _W: "waits for something outside",
            _V: "work done",
            _C: "work done, no verifier",
            _F: "gave up",
            _X: "cancelled",
        },
        _W: {_P: "answered", _F: "deadline passed", _X: "cancelled"},
        _V: {
            _C: "verified",
            _P: "rejected, attempts left",
            _F: "rejected, none left",
            _W: "a human verifies",
            _X: "cancelled",
        },
        _C: {},
        _F: {_P: "retried or resumed by hand, or begun again by its parent"},
        _X: {},
    }
)
"""From each state, the states it may move to and what such a move means."""

MOVES_BY_PARENT: Mapping[TaskState, Mapping[TaskState, str]] = MappingProxyType(
    {_C: {_P: "begun again by its parent"}, _X: {_P: "begun again by its parent"}}
)
"""What only the Commit of a parent that holds its own lease may do to a child (ReopenChild), beside ``MOVES``."""


WORKER_DIED: Final = "its worker died"
"""The reason of the move with which a sweep takes a task from a dead worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A logged change of state, written in the same commit as the change."""

    task_id: str
    number: int
    from_state: TaskState | None
    """None for the first: the task was created."""
    to_state: TaskState
    reason: str
    actor: str
    fence: int
    at: datetime

    @property
    def is_taken_back(self) -> bool:
        """Whether the task was taken from a dead worker: the claim that follows is a take-over."""
        return self.from_state is TaskState.RUNNING and self.reason == WORKER_DIED


def is_legal(source: TaskState, target: TaskState, *, by_parent: bool = False) -> bool:
    """Say whether the table allows this move; ``by_parent``: also if only a parent may make it."""
    return target in MOVES[source] or (by_parent and target in MOVES_BY_PARENT.get(source, ()))


def check_move(task_id: str, source: TaskState, target: TaskState, *, by_parent: bool = False) -> None:
    """Raise IllegalMove, naming what is allowed instead, unless the table allows this move."""
    if not is_legal(source, target, by_parent=by_parent):
        raise IllegalMove(illegal_move_message(task_id, source, target))


def illegal_move_message(task_id: str, source: TaskState, target: TaskState) -> str:
    """Say what is wrong with the move and which moves are open."""
    allowed = ", ".join(sorted(MOVES[source])) or "nothing: that state is final"
    return f"task {task_id} is {source} and cannot become {target}; from {source} it may become {allowed}"
