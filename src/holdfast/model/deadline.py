"""Deadlines: absolute moments by which something must be over, for a whole task and for each step.

They are absolute, so they hold across restarts and while a task waits in a queue. Pure: the caller passes the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model.errors import InvalidValue

LONGEST = 1000 * 365.25 * 86400.0
"""Seconds. Such a moment can still be written: the last possible year is 9999."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment and the words for what has to be over by then: ``Deadline(at, "task 42")``."""

    at: datetime
    what: str

    def __post_init__(self) -> None:
        """Reject a moment without a time zone: it would mean a different moment on another machine."""
        if self.at.utcoffset() is None:
            raise InvalidValue(f"the deadline of {self.what} has no time zone; use an aware datetime, best in UTC")

    def remaining(self, now: datetime) -> timedelta:
        """Return how much time is left; never negative."""
        return max(self.at - now, timedelta())

    def passed(self, now: datetime) -> bool:
        """Return whether it is too late; at the moment itself it is."""
        return now >= self.at

    def message(self, now: datetime) -> str:
        """Describe the deadline and how far away it is, for errors and for people."""
        if self.passed(now):
            return f"the deadline of {self.what} ({self.at.isoformat()}) passed {_display(now - self.at)} ago"
        return f"the deadline of {self.what} ({self.at.isoformat()}) is {_display(self.at - now)} away"


def moment_of(deadline: float | timedelta | datetime, now: datetime) -> datetime:
    """Return the moment of a task's deadline, given as a moment or as a time from ``now`` (seconds or timedelta)."""
    if isinstance(deadline, datetime):
        return deadline
    return now + timedelta(seconds=as_seconds(deadline, what="the deadline"))


def as_seconds(duration: float | timedelta, *, what: str = "a duration") -> float:
    """Return a duration, given as seconds or as timedelta, in seconds: more than 0, at most LONGEST."""
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise InvalidValue(f"{what} is {duration!r}; give seconds or a timedelta")
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not math.isfinite(seconds) or seconds <= 0:
        raise InvalidValue(f"{what} is {seconds:g} seconds; it must be finite and more than 0")
    if seconds > LONGEST:
        raise InvalidValue(f"{what} is {seconds:g} seconds; at most a thousand years are allowed; omit it for no limit")
    return seconds


def new_deadline(task_id: str, deadline: float | timedelta | datetime, now: datetime) -> datetime:
    """Return the moment of a task's new deadline. Raises InvalidValue if that moment has passed."""
    wanted = Deadline(moment_of(deadline, now), f"task {task_id}")
    if wanted.passed(now):
        raise InvalidValue(f"{wanted.message(now)}; give it a deadline in the future")
    return wanted.at


def _display(span: timedelta) -> str:
    seconds = span.total_seconds()
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.3g} s"
    return str(timedelta(seconds=round(seconds)))
