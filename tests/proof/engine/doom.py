"""Doom: a process that kills itself with SIGKILL at a chosen verb of its store, before, amid or after it."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from holdfast import StateStore
from holdfast.model.commit import Commit
from tests.proof.engine.evidence import Evidence

Moment: TypeAlias = Literal["before", "amid", "after"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)

WITHIN = 0.002
"""Seconds: about what a verb takes. Amid one, the end comes after any part of this."""


@dataclass
class Doom:
    """When to die."""

    verb: str
    number: int
    """At the so-many-th call of the verb; with a target, at the so-many-th Commit of that task."""
    moment: Moment
    target: str | None = None

    def __str__(self) -> str:
        return f"{self.moment} {self.verb} {self.number}"

    def await_in(self, store: StateStore, evidence: Evidence, dice: random.Random) -> None:
        """Prepare a store that is not in use yet; it also notes as evidence what it acknowledges."""
        verbs = {self.verb, "commit"}
        for verb in verbs:
            vars(store)[verb] = self._watch(verb, getattr(store, verb), evidence, dice)

    def _watch(
        self, verb: str, call: Callable[..., Any], evidence: Evidence, dice: random.Random
    ) -> Callable[..., Any]:
        seen = 0

        async def watched(*args: Any) -> Any:  # noqa: ANN401 - whatever the verb takes and answers
            nonlocal seen
            before, seen = seen, seen + (self._weight(args) if verb == self.verb else 0)
            is_now = before < self.number <= seen
            if is_now and self.moment == "before":
                die()
            if is_now and self.moment == "amid":
                delay = dice.uniform(0, WITHIN)
                threading.Thread(target=die, args=(delay,), daemon=True).start()
            answer = await call(*args)
            if verb == "commit":
                evidence.acknowledged(args[0], answer)
            if is_now and self.moment == "after":
                die()
            return answer

        return watched

    def _weight(self, args: Sequence[Any]) -> int:
        if self.target is None:
            return 1
        commits: Sequence[Commit] = args[0]
        return sum(commit.task_id == self.target for commit in commits)


def die(delay: float = 0.0) -> None:
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGKILL)
