"""A store that loses an answer after the work is done: it sends the Commit again, and answers what comes back then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from holdfast import Holdfast
from holdfast.model.commit import Commit, Verdict


@dataclass
class Losing:
    """Loses the answer to the next Commit, on request."""

    is_armed: bool = False
    lost: int = 0
    """Answers that really were lost: the Commit was applied, and sent once more."""

    def next(self) -> None:
        self.is_armed, self.lost = True, 0


def losing(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Losing:
    """Have the store of ``hold`` lose answers; this is what a restart of the database server looks like from here."""
    commit, fault = hold.store.commit, Losing()

    async def commit_twice(commits: Sequence[Commit]) -> Sequence[Verdict]:
        if not fault.is_armed:
            return await commit(commits)
        fault.is_armed = False
        first = await commit(commits)
        fault.lost += all(verdict.applied and not verdict.duplicate for verdict in first)
        return await commit(commits)

    monkeypatch.setattr(hold.store, "commit", commit_twice)
    return fault
