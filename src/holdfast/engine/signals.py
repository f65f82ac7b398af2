"""How a running attempt is told to stop. Control flow, not failure: never logged as an error, never caught by users."""

from __future__ import annotations

from dataclasses import dataclass


class Unwind(BaseException):
    """Raised inside a task's code to get out of it: it was suspended, or stopped, and whatever it does now is lost.

    No Exception, so that ``except Exception`` in a task does not stop it; ``finally`` blocks do run.
    """


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody asked for it."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The whole task took too long."""


@dataclass(frozen=True, slots=True)
class HandedBack:
    """This worker stops; another one goes on."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is over: nothing this attempt sends is written any more."""

    why: str


Stop = Cancelled | DeadlinePassed | HandedBack | Lost
