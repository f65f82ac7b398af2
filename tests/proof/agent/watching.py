"""Where a worker is: the places at which a trap may stand while it thinks and writes. Those in tools are theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from holdfast import StateStore
from holdfast.agent.model import Model, Request
from holdfast.model.commit import Commit, Held, Verdict
from holdfast.model.message import Reply
from holdfast.model.operations import Move, Operation, Reserve, WriteEffect, WriteStep
from tests.proof.effects.trap import Trap
from tests.proof.engine.doom import die


class Trail(Trap):
    """A trap that remembers which way its process came."""

    def __init__(self, place: str | None, spring: Callable[[], None]) -> None:
        super().__init__(place, spring)
        self._places: set[str] = set()

    def reach(self, place: str) -> bool:
        """Say that the process is at this place now; return whether that is where the trap was, and it went on."""
        self._places.add(place)
        return super().reach(place)

    def was_at(self, place: str) -> bool:
        """Say whether the process came past this place."""
        return place in self._places


class WatchedModel:
    """A model that tells how far an answer is, and ``of`` whom."""

    def __init__(self, model: Model, trail: Trail, of: str = "") -> None:
        self.name = model.name
        self._model = model
        self._trail = trail
        self._of = f" of {of}" if of else ""

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        """Have the model answer."""
        which = f"{(request.turn or 0) + 1}{self._of}"

        def hear(text: str) -> None:
            self._trail.reach(f"amid answer {which}")
            on_text(text)

        self._trail.reach(f"asking {which}")
        reply = await self._model.complete(request, hear)
        self._trail.reach(f"answered {which}")
        return reply


def watch_commits(store: StateStore, trail: Trail) -> None:
    """Have a store that is not in use yet tell of every Commit of its workers, before, amid and after it."""
    commit, seen = store.commit, Counter[str]()

    async def watched(commits: Sequence[Commit]) -> list[Verdict]:
        names = [_numbered(name_of(one.operations), seen) for one in commits if isinstance(one.guard, Held)]
        for name in names:
            trail.reach(f"before {name}")
        sprung = [name for name in names if trail.reach(f"amid {name}")]
        verdicts = await commit(commits)
        if sprung:
            die()  # the Commit was faster
        for name in names:
            trail.reach(f"after {name}")
        return verdicts

    vars(store)["commit"] = watched


def name_of(operations: Sequence[Operation]) -> str:
    """Name a Commit by what it was sent for: its last move, step, effect or reservation. What waited stands before."""
    for kind in (Move, WriteStep, WriteEffect, Reserve):
        for operation in reversed(operations):
            if isinstance(operation, kind):
                return _name(operation)
    return " and ".join(dict.fromkeys(type(operation).__name__ for operation in operations)) or "nothing"


def _name(operation: Move | WriteStep | WriteEffect | Reserve) -> str:
    match operation:
        case Move():
            return str(operation.to)
        case WriteStep(step):
            return f"{step.key} {step.state}"
        case WriteEffect(effect):
            return f"{effect.step_key} {effect.state}"
        case Reserve():
            return f"reservation for {operation.step_key}"


def _numbered(name: str, seen: Counter[str]) -> str:
    seen[name] += 1
    return name if seen[name] == 1 else f"{name} #{seen[name]}"
