"""Settings of a queue: what its owner allows, whatever worker or caller comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypeAlias

from holdfast.model.checks import check_integer, check_queue
from holdfast.model.errors import InvalidValue
from holdfast.model.labels import check_label_name
from holdfast.model.transitions import TERMINAL


class _Keep(Enum):
    KEEP = "leave it as it is"


Keep: TypeAlias = _Keep
"""The type of KEEP."""

KEEP: Final = _Keep.KEEP
"""A setting that is not to be changed. None is a value: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of one queue, and how full it is."""

    name: str
    max_pending: int | None = None
    """How many of its tasks may be pending; None: any number."""
    pending: int = 0
    """How many are pending now."""
    concurrency: int | None = None
    """How many of its tasks may have a slot at the same time, over all workers together; None: any number."""
    working: int = 0
    """How many have one now: a worker works on them. 0 where ``concurrency`` is None: they are not counted."""
    retention: Mapping[str, timedelta] | None = field(default=None, hash=False)
    """How long tasks are kept after their end, by the state in which they ended; None: until a prune."""
    fair_by: str | None = None
    """The label by whose values its tasks take turns; None: they are claimed in the order in which they became due."""

    @property
    def is_full(self) -> bool:
        """Whether a submission from outside would be refused."""
        return self.max_pending is not None and self.pending >= self.max_pending

    @property
    def is_at_work(self) -> bool:
        """Whether no further task may begin before another one ends or waits."""
        return self.concurrency is not None and self.working >= self.concurrency


LONGEST_RETENTION: Final = timedelta(days=36_500)

PRUNES_EVERY: Final = timedelta(minutes=1)
"""How often a sweep looks for ended tasks that a queue keeps no longer."""
PRUNES_ON_AFTER: Final = timedelta(seconds=1)
"""The same, after a sweep that has deleted as many as it may."""

_MICROSECOND: Final = timedelta(microseconds=1)


def _checked_retention(retention: object) -> dict[str, timedelta] | None:
    """Return a retention as it is kept: by plain words, and None for one that names no state."""
    if retention is None:
        return None
    if not isinstance(retention, Mapping):
        raise InvalidValue(f"retention is {retention!r}; give {{'completed': timedelta(days=30)}}, or None")
    states = {state.value: state for state in TERMINAL}
    for state, kept_for in retention.items():
        if not isinstance(state, str) or state not in states:
            raise InvalidValue(f"retention names {state!r}; tasks end as {', '.join(sorted(states))}")
        if not isinstance(kept_for, timedelta) or not timedelta(0) <= kept_for <= LONGEST_RETENTION:
            raise InvalidValue(
                f"retention of {state!s} is {kept_for!r}; give a timedelta from zero to {LONGEST_RETENTION.days:,} days"
            )
    return {str(states[state]): kept_for for state, kept_for in sorted(retention.items())} or None


def stored_retention(retention: Mapping[str, timedelta] | None) -> dict[str, int] | None:
    """Return a retention in microseconds, as stores keep it."""
    return None if retention is None else {state: kept_for // _MICROSECOND for state, kept_for in retention.items()}


def read_retention(stored: Mapping[str, int] | None) -> dict[str, timedelta] | None:
    """Return a retention of what a store has kept."""
    return None if stored is None else {state: kept_for * _MICROSECOND for state, kept_for in stored.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """What to change of the settings of a queue; KEEP leaves a setting as it is."""

    max_pending: int | Keep | None = KEEP
    concurrency: int | Keep | None = KEEP
    retention: Mapping[str, timedelta] | Keep | None = KEEP
    fair_by: str | Keep | None = KEEP

    def check(self) -> None:
        """Reject settings that could not mean anything."""
        if self.max_pending is not None and self.max_pending is not KEEP:
            check_integer("max_pending", self.max_pending, lowest=0)
        if self.concurrency is not None and self.concurrency is not KEEP:
            check_integer("concurrency", self.concurrency, lowest=1)
        if self.retention is not KEEP:
            _checked_retention(self.retention)
        if self.fair_by is not None and self.fair_by is not KEEP:
            check_label_name(self.fair_by)

    def given(self) -> dict[str, object]:
        """Return the settings that are given, by name."""
        retention = self.retention if self.retention is KEEP else _checked_retention(self.retention)
        named = {
            "max_pending": self.max_pending,
            "concurrency": self.concurrency,
            "retention": retention,
            "fair_by": self.fair_by,
        }
        return {name: value for name, value in named.items() if value is not KEEP}

    def asked(self) -> dict[str, Any]:
        """Return all settings as they were given, KEEP included: the options of ``set_queue``."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def changes(self, settings: QueueSettings) -> bool:
        """Return whether this makes anything of the settings different."""
        return any(getattr(settings, name) != value for name, value in self.given().items())


def check_change(name: str, change: QueueChange) -> None:
    """Reject a name that no queue can have, and settings that could not mean anything."""
    check_queue(name)
    change.check()
