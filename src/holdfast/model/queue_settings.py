"""Settings of a queue: what its owner allows, whatever worker or caller comes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from holdfast.model.checks import check_integer, check_queue


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

    @property
    def is_full(self) -> bool:
        """Whether a submission from outside would be refused."""
        return self.max_pending is not None and self.pending >= self.max_pending


def check_settings(name: str, max_pending: int | Keep | None) -> None:
    """Reject settings that could not mean anything."""
    check_queue(name)
    if max_pending is not None and max_pending is not KEEP:
        check_integer("max_pending", max_pending, lowest=0)
