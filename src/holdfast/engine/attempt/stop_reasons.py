"""How a running attempt is told to stop. Control flow, not failure: never logged as an error, never caught by users."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from holdfast.engine.runtime.where import current_task
from holdfast.model.errors import BudgetExceeded


class Unwind(BaseException):
    """Raised inside a task's code to get out of it: it was suspended, or stopped, and whatever it does now is lost.

    No Exception, so that ``except Exception`` in a task does not stop it; ``finally`` blocks do run.
    """

    def __init__(self) -> None:
        """Raise it where a framework may have started an asyncio task that it never looks at again."""
        super().__init__()
        if (task := current_task()) is not None:
            expect_unwind(task)


_expected: WeakSet[asyncio.Task[Any]] = WeakSet()


def expect_unwind(branch: asyncio.Task[Any]) -> None:
    """Have nothing reported if nobody ever looks at this branch, or at a ``gather`` that it belongs to."""
    if branch in _expected:
        return  # code that catches this comes here again and again
    _expected.add(branch)
    branch.add_done_callback(look_at)
    for callback, _ in getattr(branch, "_callbacks", None) or ():
        outer = inspect.getclosurevars(callback).nonlocals.get("outer") if inspect.isfunction(callback) else None
        if isinstance(outer, asyncio.Future):
            outer.add_done_callback(look_at)


def look_at(over: asyncio.Future[Any]) -> None:
    """Look at how something ended, so that asyncio does not report its error as never retrieved."""
    if not over.cancelled():
        over.exception()


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody asked for it."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The whole task took too long."""


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """The wall time of the task, or of one above it, is spent."""

    error: BudgetExceeded
    asks: bool
    """A person is to be asked for more, and the task does not fail."""
    caller: str | None
    """The task above whose time it is; None if it is its own."""


@dataclass(frozen=True, slots=True)
class HandedBack:
    """This worker stops; another one goes on."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is over: nothing this attempt sends is written any more."""

    why: str


Stop = Cancelled | DeadlinePassed | TimeSpent | HandedBack | Lost
