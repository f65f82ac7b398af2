"""Why a running attempt must stop. Control flow, not failure: never logged as an error, never caught by users."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from holdfast.engine.runtime.where import current_task
from holdfast.model.errors import BudgetExceeded


class Unwind(BaseException):
    """Raised inside a task's code to leave it: the task was suspended or stopped, and nothing more is written.

    It is not an Exception, so that ``except Exception`` in a task does not catch it; ``finally`` blocks do run.
    """

    def __init__(self) -> None:
        """Make it, and expect it in the current asyncio task: a framework may never retrieve that task's error."""
        super().__init__()
        if (task := current_task()) is not None:
            expect_unwind(task)


_expected: WeakSet[asyncio.Task[Any]] = WeakSet()


def expect_unwind(branch: asyncio.Task[Any]) -> None:
    """Keep asyncio from reporting a never retrieved error of this branch, or of a ``gather`` that it belongs to."""
    if branch in _expected:
        return  # code that catches Unwind comes here many times
    _expected.add(branch)
    branch.add_done_callback(look_at)
    for callback, _ in getattr(branch, "_callbacks", None) or ():
        outer = inspect.getclosurevars(callback).nonlocals.get("outer") if inspect.isfunction(callback) else None
        if isinstance(outer, asyncio.Future):
            outer.add_done_callback(look_at)


def look_at(over: asyncio.Future[Any]) -> None:
    """Retrieve the error of a future, so that asyncio does not report it as never retrieved."""
    if not over.cancelled():
        over.exception()


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A caller asked for it."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The whole task took too long."""


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """The wall time of the task, or of a task above it, is spent."""

    error: BudgetExceeded
    asks: bool
    """Whether a person is asked for more time, instead of failing the task."""
    caller: str | None
    """The task above whose time is spent; None if it is the task's own time."""


@dataclass(frozen=True, slots=True)
class HandedBack:
    """This worker stops; another one continues."""


@dataclass(frozen=True, slots=True)
class Paused:
    """A caller paused the task; it goes back to its queue, and is claimed when it is unpaused."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is over: the store accepts nothing more from this attempt."""

    why: str


Stop = Cancelled | DeadlinePassed | TimeSpent | HandedBack | Paused | Lost
