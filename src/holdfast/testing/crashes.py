"""Crashes that a test asks for: where they happen, and whether they did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.model.checks import check_integer, check_name
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import Operation, WriteStep
from holdfast.model.step import StepState

When = Literal["before_effect", "after_effect", "after_commit"]
"""Before the step's function runs; after it ran, with nothing recorded; after its result is durable."""

_OUTCOMES = frozenset({StepState.COMPLETED, StepState.FAILED})


class CrashDidNotHappen(AssertionError):
    """A test asked for a crash, but no code reached that place: the test proved nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where an attempt is now; a crash may happen there."""

    when: When
    steps: frozenset[str] = frozenset()
    """The steps concerned."""
    commit: int | None = None
    """The number of the Commit that is about to be sent, or was just made durable."""


@dataclass(slots=True, eq=False)
class Crash:
    """One planned crash. ``happened`` counts how often it happened."""

    where: str
    """As text, for the message that it never happened."""
    matches: Callable[[Moment], bool]
    times: int = 1
    happened: int = 0


class CrashPlan:
    """All crashes a test asked for."""

    def __init__(self) -> None:
        """Start without any."""
        self._crashes: list[Crash] = []

    def at_step(self, step: str, when: When, times: int) -> Crash:
        """Crash when this step reaches ``when``."""
        check_name("step", step)
        if when not in get_args(When):
            raise InvalidValue(f"a crash cannot happen {when!r}; choose one of {', '.join(get_args(When))}")
        check_integer("times", times, lowest=1)
        where = f"{when.replace('_', ' ')} of step {step!r}"
        return self._add(Crash(where, lambda moment: moment.when == when and step in moment.steps, times))

    def at_commit(self, number: int, *, durable: bool) -> Crash:
        """Crash at this Commit, counted from 1 over all tasks: just before it is sent, or once it is durable."""
        check_integer("commit", number, lowest=1)
        when: When = "after_commit" if durable else "after_effect"
        where = f"{'after' if durable else 'before'} commit {number}"
        return self._add(Crash(where, lambda moment: moment.when == when and moment.commit == number))

    def _add(self, crash: Crash) -> Crash:
        self._crashes.append(crash)
        return crash

    def happens_at(self, moment: Moment) -> bool:
        """Return whether a crash happens here, and count it."""
        for crash in self._crashes:
            if crash.happened < crash.times and crash.matches(moment):
                crash.happened += 1
                return True
        return False

    def check(self, steps: Sequence[str], commits: int) -> None:
        """Raise CrashDidNotHappen unless every crash happened as often as the test asked."""
        for crash in self._crashes:
            if crash.happened < crash.times:
                seen = ", ".join(map(repr, steps)) or "none"
                raise CrashDidNotHappen(
                    f"the crash {crash.where} happened {crash.happened} of {crash.times} times: nothing got that far. "
                    f"Steps that ran: {seen}; commits: {commits}"
                )


def steps_ended_by(operations: Sequence[Operation]) -> frozenset[str]:
    """Return the keys of the steps whose outcome these operations record."""
    return frozenset(
        operation.step.key
        for operation in operations
        if isinstance(operation, WriteStep) and operation.step.state in _OUTCOMES
    )
