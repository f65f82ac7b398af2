"""Calls that other children of the same parent made, in earlier rounds of the parent.

A model may divide its work among sub-agents in another way when it does it once more. What one of them did ``once`` in
an earlier round, and no child of this round goes on from, is not done again by another: the call is taken over with its
result. Each is taken over once. The event that says by which call is the compare-and-set: the first one counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from holdfast.agent.tool import ToolError
from holdfast.engine.journal import CHILD
from holdfast.engine.patience import insist
from holdfast.model.codec import decode
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.queries import TaskFilter
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt

_TAKEN = "taken"
_MOST = 1000
_COUNTS = frozenset({EffectState.DONE, EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN})


@dataclass(frozen=True, slots=True)
class _Made:
    task_id: str
    effect: Effect


class Siblings:
    """What the other children of a task's parent did, where it concerns this task."""

    def __init__(self, attempt: Attempt, made: list[_Made]) -> None:
        """Made by ``read``."""
        self._attempt = attempt
        self._made = made

    @classmethod
    async def read(cls, attempt: Attempt) -> Siblings:
        """Look at them; a task without a parent, or whose parent is in its first round, has none that count."""
        store, parent_id = attempt.services.store, attempt.task.parent_id
        parent = None if parent_id is None else await insist(partial(store.get, parent_id))
        if parent is None or parent.round == 1:
            return cls(attempt, [])
        lines = await insist(partial(store.steps, parent.id))
        at_work = {attempt.task.id} | {
            str(decode(step.output))
            for step in lines
            if step.kind == CHILD and step.round == parent.round and step.output is not None
        }
        page = await insist(partial(store.find, TaskFilter(parent_id=parent.id), limit=_MOST, newest_first=False))
        made = []
        for task in page.items:
            if task.id not in at_work:
                effects = await insist(partial(store.effects, task_id=task.id, limit=_MOST))
                made += [_Made(task.id, effect) for effect in effects if effect.effect_class is EffectClass.ONCE]
        return cls(attempt, [one for one in made if one.effect.state in _COUNTS])

    def may_have_made(self, tool: str, arguments_hash: str) -> bool:
        """Say whether one of them made such a call, or may have."""
        return any(_is_such(one.effect, tool, arguments_hash) for one in self._made)

    async def take(self, key: str, tool: str, arguments_hash: str) -> Step | None:
        """Return the line of a call that takes the place of this one; None if this one has to be made."""
        for one in self._made:
            if _is_such(one.effect, tool, arguments_hash) and await self._take(one, key):
                if one.effect.state is not EffectState.DONE:
                    raise ToolError(
                        f"task {one.task_id} made the very same call, and whether it happened is not known yet; a "
                        "person has to decide that first"
                    )
                return await self._line(one)
        return None

    async def _take(self, one: _Made, key: str) -> bool:
        store, task = self._attempt.services.store, self._attempt.task
        mine: JsonValue = {"task": task.id, "round": task.round, "key": key}
        channel = f"{_TAKEN}:{one.effect.effect_id}"
        event = await insist(partial(store.emit, channel, mine, key=_TAKEN, actor=self._attempt.lease.worker_id))
        return bool(event.payload == mine)

    async def _line(self, one: _Made) -> Step | None:
        steps = await insist(partial(self._attempt.services.store.steps, one.task_id))
        lines = [step for step in steps if step.effect_id == one.effect.effect_id]
        return next((step for step in lines if step.state is StepState.COMPLETED and step.output is not None), None)


def _is_such(effect: Effect, tool: str, arguments_hash: str) -> bool:
    return effect.arguments_hash == arguments_hash and effect.step_key.rpartition(":")[0] == tool
