"""How things in a program come out: the errors it raises on purpose, those it handles, and what became of a call."""

from __future__ import annotations

from holdfast import (
    Absent,
    DeadlineExceeded,
    Happened,
    NotFound,
    NotHappened,
    Rejected,
    StepFailed,
    TaskCancelled,
    TaskFailed,
)
from tests.proof.program_fuzz.grammar import Case
from tests.proof.program_fuzz.records import Records

HANDLED = (StepFailed, TaskFailed, TaskCancelled, Rejected)


class Declined(Exception):
    """Proof that a call did nothing."""


class Flaky(Exception):
    """A try that failed."""


class Broken(Exception):
    """A failure that lasts until a person has fixed it."""


def truth(records: Records, effect_id: str) -> Happened | Absent:
    """Say whether the call with this effect id happened."""
    for line in records.lines():
        if line.get("effect") == effect_id:
            return Happened(line["value"])
    return Absent()


def expected_errors(case: Case) -> frozenset[str]:
    """The errors that programs raise on purpose, by name."""
    given_up = ["GivenUp"] if any(node["gives_up"] for node in case.body.walk()) else []
    # A prune may take an artifact between the step that writes it and the patch with which the task keeps it.
    unkept = case.prune_after is not None and any(node["kept"] for node in case.body.walk())
    ours = (Declined, Flaky, Broken, ConnectionResetError, ExceptionGroup, NotHappened, SystemExit)
    theirs = (*HANDLED, DeadlineExceeded)
    return frozenset(
        [*(kind.__name__ for kind in (*ours, *theirs)), *given_up, *([NotFound.__name__] if unkept else [])]
    )
