"""Attempt: one try at a task by one worker, read off the task's transitions.

Attempts are not stored on their own: a claim and the move that ends it are Transitions already, and a second record of
the same facts could only disagree with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.model.transitions import TaskState, Transition

_WORKING = frozenset({TaskState.RUNNING, TaskState.REVIEW})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """From a claim to the move that gave the lease back or had it taken away."""

    number: int
    worker: str
    fence: int
    started_at: datetime
    ended_at: datetime | None = None
    """None while it lasts."""
    outcome: TaskState | None = None
    reason: str | None = None


def attempts_of(history: Sequence[Transition]) -> tuple[Attempt, ...]:
    """Return a task's attempts, first to last."""
    attempts: list[Attempt] = []
    begun: Transition | None = None
    for move in history:
        if move.to_state is TaskState.RUNNING:
            begun = move
        elif begun is not None and move.to_state not in _WORKING:
            attempts.append(_attempt(len(attempts) + 1, begun, move))
            begun = None
    if begun is not None:
        attempts.append(_attempt(len(attempts) + 1, begun, None))
    return tuple(attempts)


def _attempt(number: int, begun: Transition, ended: Transition | None) -> Attempt:
    return Attempt(
        number=number,
        worker=begun.actor,
        fence=begun.fence,
        started_at=begun.at,
        ended_at=None if ended is None else ended.at,
        outcome=None if ended is None else ended.to_state,
        reason=None if ended is None else ended.reason,
    )
