"""Doubt: an effect with an unknown outcome, who is asked about it, and what can be decided.

The engine first asks the tool: ``reconcile(effect_id, *args)`` returns Happened, Absent or Unknown. After Unknown, a
person makes one Decision.
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
    """It did not happen, and it will not happen later."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The tool cannot find out."""

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
    """Do nothing more about it. The step fails, now and in later rounds."""
    UNDONE = "undone"
    """Only where a compensation failed: a person has undone it by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """An effect in doubt, as it is shown to people."""

    effect: Effect
    task_name: str
    question: str
    arguments: JsonValue
    """What the call was made with."""
    decisions: tuple[Decision, ...]
    """What a person is asked to decide now; empty while the engine is still finding out."""
    early: tuple[Decision, ...] = ()
    """What a person who knows the outcome may decide while the engine is still finding out."""
    evidence: tuple[Evidence, ...] = ()
    approval_id: str | None = None
    """The record of the question, and of who decides it."""
