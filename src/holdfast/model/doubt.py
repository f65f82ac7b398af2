"""Doubt: an effect nobody here knows the outcome of, who is asked about it, and what can be decided.

First the tool itself is asked: ``reconcile(effect_id, *args)`` answers Happened, Absent or Unknown. What it cannot tell
is for a person, who makes one Decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from holdfast.model.effect import Effect, Evidence
from holdfast.model.task import JsonValue


@dataclass(frozen=True, slots=True)
class Happened:
    """It did happen, with this result."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Absent:
    """It did not happen, and no longer will by itself."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no telling."""

    why: str = ""


Outcome: TypeAlias = Happened | Absent | Unknown
"""What ``reconcile`` returns."""


class Decision(StrEnum):
    """What a person can decide about an effect in doubt."""

    HAPPENED = "happened"
    """It did happen: the step is completed, with the result that is given."""
    ABSENT = "absent"
    """It did not happen: try again, under the same effect id."""
    COMPENSATE = "compensate"
    """Undo it, in case it happened. The step then fails."""
    ABANDON = "abandon"
    """Leave it as it is, whatever that is. The step fails, now and in later rounds."""
    UNDONE = "undone"
    """Only where a compensation failed: somebody has undone it by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """An effect in doubt, as it is shown to people."""

    effect: Effect
    task_name: str
    question: str
    arguments: JsonValue
    """What the call was made with."""
    decisions: tuple[Decision, ...]
    """What a person is asked to decide now; empty while the engine still finds out by itself."""
    early: tuple[Decision, ...] = ()
    """What a person who knows better may decide while the engine still finds out by itself."""
    evidence: tuple[Evidence, ...] = ()
    approval_id: str | None = None
    """The record of the question, and of who decides it."""
