"""How long a task has been at work: the clock of ``max_wall_time_ms``.

The clock runs from the first claim, through crashes and queues. It stands still while the task is failed, and while the
task and all its open descendants wait for people. If one of them works, or is in a queue, the clock runs. A task that
rests on its worker counts as waiting.
The clock is computed from data that the store keeps anyway, so a crash cannot lose any of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model.approval import Approval
from holdfast.model.transitions import TaskState, Transition

Interval = tuple[datetime, datetime]
Rest = tuple[datetime, datetime | None]
"""From when to when a task rested on its worker; without an end, until the task's next move or until now."""


@dataclass(frozen=True, slots=True)
class Life:
    """What the clock of a task needs: its moves, its questions to people, its children."""

    history: Sequence[Transition]
    approvals: Sequence[Approval] = ()
    children: tuple[Life, ...] = ()
    rests: Sequence[Rest] = ()


def wall_time_ms(life: Life, now: datetime) -> int:
    """Return the milliseconds a task has been at work."""
    at_work = _at_work(life.history, now)
    spent = _common(at_work, _merged(_busy(life, now)))
    return round(sum((end - start for start, end in spent), timedelta()).total_seconds() * 1000)


def _busy(life: Life, now: datetime) -> list[Interval]:
    """Return when the task or one of its descendants was open and did not wait for people, in no order.

    A task waits for people while it is ``waiting``, or rests, and has asked a person or has an open child. The child's
    own time is counted by itself. A task that waits for a timer or an event does not wait for a person.
    """
    asked = [interval for one in life.approvals if (interval := _asked(one, now)) is not None]
    below = [interval for child in life.children for interval in _in_states(child.history, now)]
    waiting = _merged([*_in_states(life.history, now, only=TaskState.WAITING), *_resting(life, now)])
    busy = _without(_in_states(life.history, now), _common(waiting, _merged([*asked, *below])))
    for child in life.children:
        busy += _busy(child, now)
    return busy


def _asked(approval: Approval, now: datetime) -> Interval | None:
    """Return when a person could decide: not after the expiry, even if the store has not recorded it yet."""
    if approval.created_at is None:
        return None
    ends = (approval.decided_at or now, approval.expires_at or now)
    return approval.created_at, max(approval.created_at, min(ends))


def _resting(life: Life, now: datetime) -> list[Interval]:
    """Return when the task rested: never beyond the next move: a worker that died did not record the end."""
    intervals = []
    for start, end in life.rests:
        moved = next((move.at for move in life.history if move.at > start), now)
        last = moved if end is None else min(end, moved)
        if start < last:
            intervals.append((start, last))
    return _common(_merged(intervals), _in_states(life.history, now))


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
    return _merged(intervals)


def _in_states(history: Sequence[Transition], now: datetime, only: TaskState | None = None) -> list[Interval]:
    """Return when the task was in the state ``only``; if None, when it was open."""
    ends = [move.at for move in history[1:]] + [now]
    return _merged(
        (move.at, max(move.at, end))
        for move, end in zip(history, ends, strict=False)
        if (move.to_state is only if only is not None else not move.to_state.is_terminal)
    )


# Sets of moments: sorted intervals that do not touch


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same moments, sorted and without overlaps: two open questions stop the clock once."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _common(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Return the moments that are in both."""
    common: list[Interval] = []
    one = other = 0
    while one < len(some) and other < len(others):
        start, end = max(some[one][0], others[other][0]), min(some[one][1], others[other][1])
        if start < end:
            common.append((start, end))
        if some[one][1] < others[other][1]:
            one += 1
        else:
            other += 1
    return common


def _without(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Return the moments of the first that are not in the second, which is a part of it."""
    left: list[Interval] = []
    gone = iter((*others, None))
    out = next(gone)
    for start, end in some:
        begin = start
        while out is not None and out[0] < end:
            if begin < out[0]:
                left.append((begin, out[0]))
            begin = max(begin, out[1])
            out = next(gone)
        if begin < end:
            left.append((begin, end))
    return left
