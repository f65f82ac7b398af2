"""Casts: the agents of each scene, as data that can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import Holdfast, TaskDefinition
from holdfast.testing.ledger import Ledger
from tests.agent_proof import mission
from tests.agent_proof.life import Stage
from tests.agent_proof.mission import Strategy


@dataclass(frozen=True)
class Mission:
    """The agent of one mission."""

    base_url: str
    ledger: Ledger
    number: int
    strategy: Strategy
    limited: bool

    def __call__(self, hold: Holdfast, stage: Stage) -> TaskDefinition[..., str]:
        model = stage.model(self.base_url)
        return mission.define(
            hold, model, self.ledger, stage.trail, self.number, strategy=self.strategy, limited=self.limited
        )
