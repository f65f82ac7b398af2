"""How long a task has been at work: the clock of ``max_wall_time_ms``.

It runs from the first claim, through crashes and queues, and stands still while a person decides and while the task
lies failed. It is computed from what the store has anyway, so there is nothing that a crash could forget to add.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from holdfast.model.approval import Approval
from holdfast.model.transitions import TaskState, Transition

Interval = tuple[datetime, datetime]


def wall_time_ms(history: Sequence[Transition], approvals: Iterable[Approval], now: datetime) -> int:
    """Return the milliseconds a task has been at work."""
    at_work = _at_work(history, now)
    deciding = _merged((asked.created_at, asked.decided_at or now) for asked in approvals if asked.created_at)
    spent = sum((end - start for start, end in at_work), timedelta())
    spent -= sum((_overlap(one, other) for one in at_work for other in deciding), timedelta())
    return max(0, round(spent.total_seconds() * 1000))


def _at_work(history: Sequence[Transition], now: datetime) -> list[Interval]:
    intervals: list[Interval] = []
    began: datetime | None = None
    for move in history:
        if began is None and move.to_state is TaskState.RUNNING:
            began = move.at
        elif began is not None and move.to_state.is_terminal:
            intervals.append((began, move.at))
            began = None
    if began is not None:
        intervals.append((began, max(began, now)))
    return intervals


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same moments without overlaps: two open questions stop the clock once."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _overlap(one: Interval, other: Interval) -> timedelta:
    return max(min(one[1], other[1]) - max(one[0], other[0]), timedelta())
