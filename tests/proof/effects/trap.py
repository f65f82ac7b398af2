"""Traps: what happens to a process when it comes to a certain place on its way. See roads for the places."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from holdfast import StateStore, StepState, TaskState
from holdfast.engine.effects.once_step import OnceStep
from holdfast.model.commit import Commit, Held, Verdict
from holdfast.model.effect import Effect, EffectState
from holdfast.model.operations import Move, OpenApproval, Operation, WriteEffect, WriteStep
from tests.proof.engine.doom import WITHIN, die

STEP = "pay"
"""The step whose effect is tested."""

logger = logging.getLogger(__name__)

_NAMES = {
    EffectState.ARMED: "arm",
    EffectState.IN_DOUBT: "doubt",
    EffectState.INTENDED: "absent",
    EffectState.DONE: "happened",
    EffectState.NEEDS_HUMAN: "human",
}


class Trap:
    """Springs, once, when the process comes to its place."""

    def __init__(self, place: str | None, spring: Callable[[], None]) -> None:
        self.place = place
        self._spring = spring
        self._has_sprung = False

    def reach(self, place: str) -> bool:
        """Say that the process is at this place now; return whether that is where the trap was, and it went on."""
        logger.info("at: %s", place)
        if place != self.place or self._has_sprung:
            return False
        self._has_sprung = True
        self._spring()
        return True


def kill_soon(dice: random.Random) -> Callable[[], None]:
    """End the process during what comes next."""
    return lambda: threading.Thread(target=die, args=(dice.uniform(0, WITHIN),), daemon=True).start()


def hold_until(opened: Path) -> Callable[[], None]:
    """Stay right here until a file appears: the test is about to freeze the process."""

    def hold() -> None:
        logger.info("held")
        while not opened.exists():
            time.sleep(0.005)

    return hold


# The places the engine passes; those in the task's own functions are in errand


@contextlib.contextmanager
def watching_checks(trap: Trap) -> Iterator[None]:
    """Have the trap notice the last check before a call."""
    last_check = OnceStep._last_check

    def watched(step: OnceStep, armed: Effect) -> None:
        trap.reach("before check")
        last_check(step, armed)
        trap.reach("after check")

    with mock.patch.object(OnceStep, "_last_check", watched):
        yield


def watch_commits(store: StateStore, trap: Trap) -> None:
    """Have a store that is not in use yet tell the trap what its workers write."""
    commit = store.commit

    async def watched(commits: Sequence[Commit]) -> list[Verdict]:
        written = [what for one in commits if isinstance(one.guard, Held) for what in _written(one.operations)]
        for what in written:
            trap.reach(f"before {what}")
        sprung = [what for what in written if trap.reach(f"amid {what}")]
        verdicts = await commit(commits)
        if sprung:
            die()  # the Commit was faster
        for what in written:
            trap.reach(f"after {what}")
        return verdicts

    vars(store)["commit"] = watched


def _written(operations: Sequence[Operation]) -> list[str]:
    """Name what a Commit is about."""
    effects = [operation.effect.state for operation in operations if isinstance(operation, WriteEffect)]
    names = []
    for operation in operations:
        match operation:
            case WriteStep(step) if step.key == STEP and step.state is StepState.COMPLETED:
                names.append("result" if effects or step.effect_id is None else "adoption")
            case OpenApproval():
                names.append("question")
            case Move(to=TaskState.COMPLETED):
                names.append("end")
    return names or [_NAMES[state] for state in effects if state in _NAMES]
