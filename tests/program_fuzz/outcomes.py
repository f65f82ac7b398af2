"""How things in a program come out: the errors it raises on purpose, those it handles, and what became of a call."""

from __future__ import annotations

from holdfast import Absent, DeadlineExceeded, Happened, NotHappened, Rejected, StepFailed, TaskCancelled, TaskFailed
from tests.program_fuzz.records import Records

HANDLED = (StepFailed, TaskFailed, TaskCancelled, Rejected)


class Declined(Exception):
    """Proof that a call did nothing."""


class Flaky(Exception):
    """A try that failed."""


class Broken(Exception):
    """What fails until a person has fixed it."""


def truth(records: Records, effect_id: str) -> Happened | Absent:
    """Say whether the call with this effect id happened."""
    for line in records.lines():
        if line.get("effect") == effect_id:
            return Happened(line["value"])
    return Absent()


def expected_errors() -> frozenset[str]:
    """The errors that programs raise on purpose, by name."""
    ours = (Declined, Flaky, Broken, ConnectionResetError, ExceptionGroup, NotHappened, SystemExit)
    theirs = (*HANDLED, DeadlineExceeded)
    return frozenset(kind.__name__ for kind in (*ours, *theirs))
