"""A WHERE clause that depends on the question: conditions that must all hold, with their values. No I/O."""

from __future__ import annotations

from typing import Any

from holdfast.model.queries import TaskFilter


class Where:
    """Conditions that must all hold, with their values."""

    def __init__(self, *, numbered: bool) -> None:
        """Start with no condition: everything fits. ``numbered`` writes ``$1`` for a value, as PostgreSQL has it."""
        self._numbered = numbered
        self._conditions: list[str] = []
        self.values: list[Any] = []

    def add(self, condition: str, *values: object) -> None:
        """Add one condition; ``?`` stands for each value."""
        for value in values:
            self.values.append(value)
            if self._numbered:
                condition = condition.replace("?", f"${len(self.values)}", 1)
        self._conditions.append(condition)

    def equal(self, column: str, value: object | None) -> None:
        """Ask for this value, unless it is None."""
        if value is not None:
            self.add(f"{column} = ?", value)

    def __str__(self) -> str:
        """Return the clause."""
        return f"WHERE {' AND '.join(self._conditions)}" if self._conditions else ""


def leading_label(where: TaskFilter) -> tuple[str, str] | None:
    """Return the label whose index a listing goes through; None where another index has fewer tasks, or without labels.

    One parent, key or worker has few tasks, a label may have a million.
    """
    if where.parent_id is None and where.key is None and where.owner is None and where.resting is not True:
        return next(iter(where.labels.items()), None)
    return None
