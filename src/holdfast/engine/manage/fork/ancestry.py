"""Where a fork came from: the line behind the past it shares, and what its code must not notice of it.

``ctx.random()`` and ``ctx.uuid()`` are made of the task's id. Code that goes through the past that a
fork shares with its origin has to see what it saw there, or its steps would not fit what is recorded. What comes after
is the fork's own: two tasks that make up the same number for two orders would be taken for one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.attempt.scope import enclosing_path, path_inside
from holdfast.model.canonical import canonical, parse
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue

MARKER = "holdfast:fork"
KIND = "fork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a task branched off from another one."""

    task_id: str
    step: str | None
    """The last step that they share; None if they share none."""
    position: int
    """Of that step, in the origin's journal."""
    version: int
    """How many patches of the AgentState they share."""
    at: datetime | None
    """When."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """Up to this position of its journal, a task's numbers are made of that task and round."""

    task_id: str
    round: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestry:
    """What the line says."""

    origin: Origin
    asked: str
    """The digest of what was asked for: the same again, under the same key, is the same fork."""
    seeds: tuple[Seed, ...]
    again: tuple[str, ...]
    """Steps of the shared past that the fork does itself: what was open, or had been undone."""

    @property
    def end(self) -> int:
        """The position of the last line that is shared."""
        return max(seed.position for seed in self.seeds)

    def line(self, round_: int) -> Step:
        """Return it as the line of the journal behind what is shared, in the round in which the fork begins."""
        document: JsonValue = {
            "task": self.origin.task_id,
            "step": self.origin.step,
            "position": self.origin.position,
            "version": self.origin.version,
            "asked": self.asked,
            "seeds": [[seed.task_id, seed.round, seed.position] for seed in self.seeds],
            "again": list(self.again),
        }
        return Step(
            key=MARKER,
            kind=KIND,
            position=self.end + 1,
            state=StepState.COMPLETED,
            round=round_,
            output=canonical(document),
            started_at=self.origin.at,
            finished_at=self.origin.at,
        )

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Ancestry | None:
        """Find it in a journal; None for a task that is no fork."""
        marker = next((step for step in steps if step.key == MARKER), None)
        return None if marker is None else cls.read(marker)

    @classmethod
    def read(cls, line: Step) -> Ancestry:
        """Read what ``line`` wrote."""
        read = parse(line.output or b"null")
        return cls(
            origin=Origin(
                task_id=read["task"],
                step=read["step"],
                position=read["position"],
                version=read["version"],
                at=line.finished_at,
            ),
            asked=read["asked"],
            seeds=tuple(
                Seed(task_id=task, round=round_, position=position) for task, round_, position in read["seeds"]
            ),
            again=tuple(read["again"]),
        )


class PastReplay:
    """How far the code of a fork, in one attempt, has come through the past it shares."""

    __slots__ = ("_again", "_ahead", "_inside", "_lines", "_seeds", "_shared")

    def __init__(self, marker: Step, steps: Iterable[Step]) -> None:
        """``steps`` are those of the round in which the fork began: in later ones nothing of the past replays."""
        ancestry = Ancestry.read(marker)
        shared = sorted((step.position, step.key) for step in steps if step.position <= ancestry.end)
        self._shared = [(position, key) for position, key in reversed(shared)]
        self._lines = list(self._shared)
        self._ahead = {key for _, key in shared}
        self._again = frozenset(ancestry.again)
        self._seeds = ancestry.seeds
        self._inside: dict[str, list[str]] = {}
        for key in self._ahead:
            self._inside.setdefault(enclosing_path(key), []).append(key)

    def passes(self, key: str) -> None:
        """Note that the code has come to a line of the journal; a step that is shared is passed with all inside it."""
        if key not in self._ahead:
            return
        self._ahead.discard(key)
        if key not in self._again:
            for inner in self._inside.get(path_inside(key), ()):
                self.passes(inner)

    def calls(self, key: str) -> None:
        """Note that the code calls a step; with one that is not shared, this branch leaves the past behind."""
        if key in self._ahead:
            self.passes(key)
        elif key not in self._again:
            _BEYOND.set(self)

    def mark(self) -> tuple[frozenset[str], bool]:
        """Return how far this branch has come, for ``go_back``."""
        return frozenset(self._ahead), _BEYOND.get(None) is self

    def go_back(self, mark: tuple[frozenset[str], bool]) -> None:
        """Be where the mark was made: each try of a step goes through what is inside it from the beginning."""
        ahead, is_beyond = mark
        self._ahead |= ahead
        self._lines = [(position, key) for position, key in self._shared if key in self._ahead]
        if not is_beyond:
            _BEYOND.set(None)

    def seed(self) -> tuple[str, int] | None:
        """Return the task and round that numbers are made of here; None: those of the task itself."""
        while self._lines and self._lines[-1][1] not in self._ahead:
            self._lines.pop()
        if not self._lines or _BEYOND.get(None) is self:
            return None
        position = self._lines[-1][0]
        return next((seed.task_id, seed.round) for seed in self._seeds if position <= seed.position)


_BEYOND: ContextVar[PastReplay | None] = ContextVar("holdfast_beyond_the_shared_past", default=None)
"""Set in a branch of a fork that has left the past behind, and in those it starts."""
