"""Risk levels: how much a tool can do to the world, and so whether a person has to agree first."""

from __future__ import annotations

from enum import StrEnum


class RiskLevel(StrEnum):
    """Ordered: ``read_only < write_local < external_action``."""

    READ_ONLY = "read_only"
    """Reads, changes nothing."""
    WRITE_LOCAL = "write_local"
    """Changes that can be reverted: files, the agent's own machine."""
    EXTERNAL_ACTION = "external_action"
    """Affects others: sends, pays, deploys."""

    @property
    def rank(self) -> int:
        """The place in the order, from 0."""
        return list(RiskLevel).index(self)

    # StrEnum would compare alphabetically, and external_action would be the lowest.
    def __lt__(self, other: str) -> bool:
        return self.rank < RiskLevel(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= RiskLevel(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > RiskLevel(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= RiskLevel(other).rank
