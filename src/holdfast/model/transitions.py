"""The life of a task: the one table of allowed moves.

The engine, both SQL schemas (a test compares their CHECK constraints with it) and the diagram in the docs
are driven by ``MOVES``, and by ``MOVES_BY_PARENT`` for the one move that only a parent makes. Only these tables decide
whether a task may go from one state to another: ``judge`` in model/commit.py asks them for every Commit, and on
PostgreSQL the function ``judge`` asks their copy, ``is_legal_move``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from holdfast.model.errors import IllegalMove


class TaskState(StrEnum):
    """The states of a task, and who moves it out of each."""

    PENDING = "pending"
    """In the queue. A worker's claim moves it to running; its deadline fails it."""

    RUNNING = "running"
    """Leased by one worker, whose Commits move it on. When that lease expires, the next sweep of any process returns it
    to pending. A task saved by hand may be running with no lease; then only a person moves it."""

    WAITING = "waiting"
    """Waits for an approval, an answer, a timer, an event, a child or more budget, and holds no worker.
    The call that brings the awaited thing, or a sweep, moves it to pending; its deadline fails it."""

    REVIEW = "review"
    """The work is done and a verifier checks it, under the same or a new lease."""

    COMPLETED = "completed"
    """Done and, if it has a verifier, verified. Final, unless its parent restarts it."""

    FAILED = "failed"
    """Given up. Final until a person retries or resumes it, or its parent restarts it."""

    CANCELLED = "cancelled"
    """Stopped by a person or a parent. Final, unless its parent restarts it."""

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended. A person may still revive a failed task, and a parent any child."""
        return self in TERMINAL


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})

KEEPS_LEASE = frozenset({TaskState.RUNNING, TaskState.REVIEW})
"""A worker that moves its task to one of these keeps the lease; any other Move releases it."""
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
        _F: {_P: "retried or resumed by hand, or restarted by its parent"},
        _X: {},
    }
)
"""From each state, the states it may move to and what such a move means."""

MOVES_BY_PARENT: Mapping[TaskState, Mapping[TaskState, str]] = MappingProxyType(
    {_C: {_P: "restarted by its parent"}, _X: {_P: "restarted by its parent"}}
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


def is_take_over(before: Sequence[Transition], state: TaskState, *, deaths: int) -> bool:
    """Say whether a claim is a take-over: of a task in this state, with which so many workers died, after these moves.

    In review a death is not a move. It is one that was counted beyond those among the moves.
    """
    if state is not TaskState.REVIEW:
        return bool(before) and before[-1].is_taken_back
    for move in reversed(before):
        if move.from_state is TaskState.FAILED:
            return False  # revived: which deaths are still counted is not known
        if move.from_state is None or move.from_state is TaskState.REVIEW or move.from_state.is_terminal:
            break  # from here on they were counted
        deaths -= move.is_taken_back
    return deaths > 0


def is_legal(source: TaskState, target: TaskState, *, by_parent: bool = False) -> bool:
    """Return whether the table allows this move; with ``by_parent``, also a move that only a parent may make."""
    return target in MOVES[source] or (by_parent and target in MOVES_BY_PARENT.get(source, ()))


def check_move(task_id: str, source: TaskState, target: TaskState, *, by_parent: bool = False) -> None:
    """Raise IllegalMove unless the table allows this move; the error names the allowed moves."""
    if not is_legal(source, target, by_parent=by_parent):
        raise IllegalMove(illegal_move_message(task_id, source, target))


def illegal_move_message(task_id: str, source: TaskState, target: TaskState) -> str:
    """Return the error message for a move that is not allowed, with the allowed moves."""
    allowed = ", ".join(sorted(MOVES[source])) or "nothing: that state is final"
    return f"task {task_id} is {source} and cannot become {target}; from {source} it may become {allowed}"
