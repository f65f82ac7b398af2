"""Finding: one result of a check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.model.task import JsonValue

APPLICATION = "MODULE:HOLDFAST"
"""A placeholder in a remedy; where an application is named, its name replaces it."""


class Level(StrEnum):
    """How bad it is, from nothing to worst."""

    OK = "ok"
    NOTE = "note"
    """Good to know; nothing has to be done."""
    WARNING = "warning"
    """A person should look at it: work stands still, or might be lost one day."""
    ERROR = "error"
    """The store cannot be used, or cannot keep its promises."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a diagnosis."""

    check: str
    level: Level
    words: str
    remedy: str | None = None
    """What to do, with the command to type; None only where all is well."""
    tasks: frozenset[str] = frozenset()
    """The names of the tasks that the application in the remedy has to define, as far as they are known."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {"check": self.check, "level": str(self.level), "words": self.words, "remedy": self.remedy}


def worst(findings: Iterable[Finding]) -> Level:
    """Return the level of the worst finding."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)
