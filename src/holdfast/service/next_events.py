"""What happens to a task by itself, and when: the next try of a step, the next look at a call in doubt. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.engine.attempt.journal import RESERVED
from holdfast.engine.effects.doubt import ASKED_EARLY, NO_RECONCILE
from holdfast.model.canonical import parse
from holdfast.model.doubt import Doubt
from holdfast.model.failure import Failure
from holdfast.model.step import Step, StepState

LONG = timedelta(seconds=30)
"""From this wait on, the reason and a way to shorten it are shown."""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Something that happens by itself at a time. Front ends count down to it."""

    what: str
    """A sentence without its time: ``reconcile is asked again``."""
    at: datetime

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"what": self.what, "at": self.at.isoformat()}


def is_retried(step: Step) -> bool:
    """Return whether a step waits for its next try, after one that failed."""
    return step.state is StepState.PENDING and step.retry_at is not None and step.error is not None


def last_error(step: Step) -> str:
    """Return the error of the last try of a step, on one line; empty if none failed."""
    failure = Failure.from_json(parse(step.error)) if step.error else None
    if failure is None or not failure.message:
        return ""
    return " ".join(f"{failure.type_name.rpartition('.')[2]}: {failure.message}".split())


def next_try(step: Step) -> int:
    """Return the number of the try that a step waits for."""
    failure = Failure.from_json(parse(step.error)) if step.error else None
    return failure.tries[-1].number + 1 if failure is not None and failure.tries else step.attempts + 1


def about_try(step: Step) -> tuple[str, Upcoming]:
    """Return why a step waits for its next try, and when that comes."""
    assert step.retry_at is not None  # noqa: S101 - asked for only of those that wait for one
    name, number, error = repr(step.key.removeprefix(RESERVED)), next_try(step), last_error(step)
    why = f"try {number - 1} of {name} failed" + (f": {error}" if error else "")
    return why, Upcoming(f"try {number} of {name} begins", step.retry_at)


def next_look(doubt: Doubt, at: datetime) -> Upcoming | None:
    """Return when a call in doubt is next checked by itself; None if a check is under way, or a person decides."""
    settles, note = doubt.effect.settle_at, doubt.effect.note or ""
    if doubt.decisions or settles is None or settles <= at:
        return None
    if ASKED_EARLY in note:
        return Upcoming("reconcile is asked again", settles)
    if NO_RECONCILE in note:
        return Upcoming("a person is asked", settles)
    return Upcoming("reconcile is asked (a person, where the step has none)", settles)


def why_in_doubt(doubt: Doubt, at: datetime) -> str:
    """Return why a call is in doubt, and why it is not decided yet."""
    effect = doubt.effect
    known = f"whether {effect.step_key!r} happened is not known" + (f": {effect.note}" if effect.note else "")
    if next_look(doubt, at) is None:
        return known
    parts = [known, "The call may still arrive, so it is not made again before it has settled", shorter(doubt, at)]
    return ". ".join(filter(None, parts))


def shorter(doubt: Doubt, at: datetime) -> str:
    """Return what would make a long wait shorter next time; empty if it is not long, or nothing would."""
    effect = doubt.effect
    if effect.settle_at is None or effect.dispatch_by is None or effect.settle_at - at <= LONG:
        return ""
    allowed = (effect.settle_at - effect.dispatch_by).total_seconds()
    return f"timeout= and settle= of the step allow it {allowed:.0f} s: shorter ones make this wait shorter next time"
