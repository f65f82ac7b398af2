"""The bill: how many answers had to be paid twice because a worker was killed, by strategy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.proof.agent.mission import Strategy, most_lost


@dataclass(frozen=True)
class Setting:
    """How an agent saves, and whether its budget has limits."""

    strategy: Strategy
    limited: bool

    @property
    def most_lost(self) -> int:
        """How many answers one kill can cost, by what the strategy promises."""
        return most_lost(self.strategy, limited=self.limited)


def table(kills: Iterable[tuple[Setting, int]]) -> str:
    """Return a table of kills, each with the answers that were paid twice for it."""
    costs: dict[Setting, list[int]] = defaultdict(list)
    for setting, paid_twice in kills:
        costs[setting].append(paid_twice)
    lines = [
        f"{'strategy':16} {'budget':9} {'kills':>6} {'answers paid twice':>19} {'most per kill':>14} {'promised':>9}"
    ]
    for setting, paid in costs.items():
        budget = "limits" if setting.limited else "no limits"
        counts = f"{len(paid):6} {sum(paid):19} {max(paid):14} {setting.most_lost:9}"
        lines.append(f"{setting.strategy:16} {budget:9} {counts}")
    return "\n".join(lines)
