"""Whether the model of a task, or of one of its children, was ever reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.agent.transcript import LLM
from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.canonical import parse
from holdfast.model.failure import Failure, Try
from holdfast.model.queries import TaskFilter
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import OPEN

_CHILDREN = 20
_DEEPEST = 5


@dataclass(frozen=True, slots=True)
class Unreached:
    """A model call that waits for its next try, after tries that all found no connection."""

    task_id: str
    step: str
    message: str
    tries: tuple[Try, ...]
    """Those since a given time, oldest first."""


@dataclass(frozen=True, slots=True)
class ModelReach:
    """What is known of the endpoints that a task and those below it use."""

    is_reached: bool
    """A model call was answered: an endpoint that worked once is likely to come back."""
    unreached: Unreached | None = None


async def read_reach(hold: Holdfast, task_id: str, *, since: datetime) -> ModelReach:
    """Look at the model calls of a task, and of the open tasks below it; only tries made ``since`` then count."""
    found: list[Unreached] = []
    tasks, depth = [task_id], 0
    while tasks and depth < _DEEPEST:
        below: list[str] = []
        for one in tasks:
            steps = [step for step in await hold.store.steps(one) if step.kind == LLM]
            if any(step.state is StepState.COMPLETED for step in steps):
                return ModelReach(is_reached=True)
            found += _unreached(one, steps, since)
            page = await hold.store.find(TaskFilter(parent_id=one, states=OPEN), limit=_CHILDREN)
            below += [child.id for child in page.items]
        tasks, depth = below, depth + 1
    return ModelReach(is_reached=False, unreached=found[0] if found else None)


def _unreached(task_id: str, steps: Sequence[Step], since: datetime) -> list[Unreached]:
    found: list[Unreached] = []
    for step in steps:
        if step.state is not StepState.PENDING or step.error is None:
            continue
        failure = Failure.from_json(parse(step.error))
        tries = tuple(one for one in failure.tries if one.at >= since)
        if tries and all(one.is_away for one in tries):
            found.append(Unreached(task_id, step.key, failure.message, tries))
    return found
