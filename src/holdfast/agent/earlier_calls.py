"""Calls of earlier rounds: those of the task itself, and those of the other children of its parent.

A model that repeats its work may make its calls in another order, and divide them among its sub-agents in another way.
A ``once`` call from before this round is not made again: an equal call takes over its effect and its result. Two calls
are equal if the model wrote the same arguments for both, or if both were read as the same arguments. These can differ:
a default factory gives another value in each round, and a changed tool another default. In a new round of the parent,
several children may want the same effect, also the child that made it. The first one gets it, for that round of the
parent. The others look for another equal effect, or make the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from holdfast.agent.fixed_arguments import fingerprint
from holdfast.agent.tool import ToolError
from holdfast.agent.transcript import RecordedAnswer, read_answers, tool_key
from holdfast.engine.attempt.journal import CHILD
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.steps.call import Call, arguments_of
from holdfast.model.canonical import digest
from holdfast.model.codec import decode
from holdfast.model.effect import NOT_MADE, UNKNOWN_OUTCOME, Effect, EffectClass, EffectState
from holdfast.model.queries import TaskFilter
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue, Task

if TYPE_CHECKING:
    from holdfast.engine.attempt.attempt import Attempt

_MOST = 1000
_COUNTS = UNKNOWN_OUTCOME | {EffectState.DONE}


@dataclass(frozen=True, slots=True)
class TakenEffect:
    """An effect of a sibling that replaces a call."""

    effect: Effect
    output: bytes | None
    """What the sibling recorded as the result; None if it recorded nothing."""


@dataclass(frozen=True, slots=True)
class Again:
    """A call of the task itself, in an earlier round, that a new call repeats."""

    key: str
    arguments: dict[str, JsonValue] | None
    """The arguments of the earlier call; None: the same as those of the new call."""


class EarlierCalls:
    """The earlier ``once`` calls that the calls of an attempt may repeat."""

    def __init__(self, attempt: Attempt, round_: int, siblings: list[Effect], wrote: dict[str, str]) -> None:
        """Made by ``read``. ``round_`` is the round of the parent; 1 if there is no parent.

        ``wrote`` has the arguments that the models of the siblings wrote, by the ids of the effects.
        """
        self._attempt = attempt
        self._round = round_
        self._siblings = siblings
        self._siblings_wrote = wrote
        self._wrote: dict[str, str] = {}
        """The arguments that the task's own model wrote in earlier rounds, by the keys of the calls."""
        self._takers: dict[str, str] = {}
        """The call of this attempt that took an effect, by the effect's id."""

    @classmethod
    async def read(cls, attempt: Attempt) -> EarlierCalls:
        """Read the siblings' calls, if there is a parent and it is past its first round."""
        store, parent_id = attempt.services.store, attempt.task.parent_id
        parent = None if parent_id is None else await call_store(partial(store.get, parent_id))
        if parent is None or parent.round == 1:
            return cls(attempt, 1, [], {})
        effects: list[Effect] = []
        wrote: dict[str, str] = {}
        for task in await _children_of(attempt, parent):
            if task.id != attempt.task.id:
                made = await call_store(partial(store.effects, task_id=task.id, limit=_MOST))
                effects += made
                if any(effect.effect_class is EffectClass.ONCE for effect in made):
                    by_key = _written(read_answers(await call_store(partial(store.steps, task.id))))
                    wrote |= {one.effect_id: by_key[one.step_key] for one in made if one.step_key in by_key}
        # Read after the effects: a sibling that does not work now made none of these effects in this round.
        at_work = {
            str(decode(step.output))
            for step in await call_store(partial(store.steps, parent.id))
            if step.kind == CHILD
            and step.round == parent.round
            and step.state is StepState.COMPLETED
            and step.output is not None
        }
        rounds = {task.id: task.round for task in await _children_of(attempt, parent) if task.id in at_work}
        siblings = [
            effect
            for effect in effects
            if effect.effect_class is EffectClass.ONCE
            and (effect.task_id not in rounds or effect.round < rounds[effect.task_id])
        ]
        return cls(attempt, parent.round, siblings, wrote)

    def note_own(self, answers: Iterable[tuple[int, RecordedAnswer]]) -> None:
        """Remember what the task's own model wrote in earlier rounds."""
        self._wrote = _written(answers)

    def may_have_made(self, tool: str, call: Call, wrote: str) -> bool:
        """Return whether an equal call was made before, or may have been. ``wrote`` is the model's own text for it."""
        return bool(self._own(tool, call, wrote) or self._of_siblings(tool, call, wrote))

    async def take(self, tool: str, call: Call, wrote: str) -> TakenEffect | Again | None:
        """Find an equal earlier call that this one repeats: the task's own, or a sibling's. None: make the call.

        Raises ToolError if a sibling may have made an equal call and it is not known yet whether it did.
        """
        own, of_siblings = self._own(tool, call, wrote), self._of_siblings(tool, call, wrote)
        if self._round > 1 and (own or of_siblings):
            await self._attempt.check()  # a discovery replay stops here, and takes nothing
        for step in own:
            if await self._is_still_made(step) and await self._take(step.effect_id or "", call.key):
                return await self._once_more(step, call)
        effects = [now for effect in of_siblings if (now := await self._now(effect)) is not None]
        for effect in effects:
            if effect.state in UNKNOWN_OUTCOME:
                raise ToolError(
                    f"task {effect.task_id} made the same call, and it is not known yet whether it happened; that has "
                    "to be found out, or decided by a person, before the call is made again"
                )
        for effect in effects:
            if await self._take(effect.effect_id, call.key):
                return TakenEffect(effect, await self._output(effect))
        return None

    async def _once_more(self, step: Step, call: Call) -> TakenEffect | Again:
        if step.digest == digest(arguments_of(call)):
            return Again(step.key, None)
        effect_id = step.effect_id or ""
        effect = self._attempt.intents.effects.get(effect_id)
        if effect is not None:
            [arguments] = decode(effect.arguments, name=f"the arguments of {step.key!r}")
            return Again(step.key, arguments)
        # The effect of another task, with other arguments than this call: its record is used as it is.
        made = Effect(effect_id=effect_id, step_key=step.key, effect_class=EffectClass.ONCE, state=EffectState.DONE)
        return TakenEffect(made, step.output)

    async def _take(self, effect_id: str, key: str) -> bool:
        """Take an effect, by compare-and-set among the children of the parent. Return False if another call has it."""
        attempt, task = self._attempt, self._attempt.task
        if self._round > 1:
            mine: dict[str, JsonValue] = {"task": task.id, "key": key, "round": task.round}
            emit = partial(attempt.services.store.emit, f"taken:{effect_id}", mine, key=f"round {self._round}")
            event = await call_store(partial(emit, actor=attempt.lease.worker_id))
            # An effect that this task took in an earlier round of its own is still free for it.
            is_of_round_before = event.payload["task"] == task.id and event.payload["round"] != task.round
            if event.payload != mine and not is_of_round_before:
                return False
        line = attempt.journal.by_effect(effect_id)
        if line is not None and line.round == task.round and line.key != key:
            return False
        return self._takers.setdefault(effect_id, key) == key

    # Its own

    def _own(self, tool: str, call: Call, wrote: str) -> list[Step]:
        if self._attempt.task.round == 1:
            return []
        arguments_hash, written = digest(arguments_of(call)), fingerprint(wrote)

        def is_same(step: Step) -> bool:
            return step.digest == arguments_hash or self._wrote.get(step.key) == written

        return self._attempt.journal.done_before(tool, by=call.key, is_same=is_same, is_made=self._is_made)

    def _is_made(self, step: Step) -> bool:
        """Return whether a call was made, or may have been. A proven absent call must not hide one that was made."""
        effect = self._attempt.intents.effects.get(step.effect_id or "")
        if effect is None:  # it belongs to the origin of a fork, or to a sibling
            return step.state is StepState.COMPLETED
        return effect.state not in NOT_MADE and effect.state is not EffectState.COMPENSATED

    async def _is_still_made(self, step: Step) -> bool:
        """Check again, if the effect belongs to a sibling: it may have been undone since."""
        if self._round == 1 or step.effect_id in self._attempt.intents.effects:
            return True
        effect = await self._read(step.effect_id or "")
        return effect is None or effect.state is EffectState.DONE

    # Its siblings'

    def _of_siblings(self, tool: str, call: Call, wrote: str) -> list[Effect]:
        if not self._siblings:
            return []
        arguments_hash, written = digest(arguments_of(call)), fingerprint(wrote)
        return [
            effect
            for effect in self._siblings
            if effect.step_key.rpartition(":")[0] == tool
            and (effect.arguments_hash == arguments_hash or self._siblings_wrote.get(effect.effect_id) == written)
        ]

    async def _now(self, effect: Effect) -> Effect | None:
        """Return the effect as it is now; None if it cannot be taken, for example because it is being made again."""
        now = await self._read(effect.effect_id)
        return now if now is not None and now.state in _COUNTS and now.round == effect.round else None

    async def _read(self, effect_id: str) -> Effect | None:
        store = self._attempt.services.store
        return next(iter(await call_store(partial(store.effects, effect_id=effect_id, limit=1))), None)

    async def _output(self, effect: Effect) -> bytes | None:
        steps = await call_store(partial(self._attempt.services.store.steps, effect.task_id))
        lines = [step for step in steps if step.effect_id == effect.effect_id]
        return next((step.output for step in lines if step.state is StepState.COMPLETED and step.output), None)


def _written(answers: Iterable[tuple[int, RecordedAnswer]]) -> dict[str, str]:
    """Return fingerprints of the arguments that a model wrote, by the keys of its calls."""
    return {
        tool_key(call.name, turn, index): fingerprint(call.arguments)
        for turn, answer in answers
        for index, call in enumerate(answer.reply.tool_calls)
    }


async def _children_of(attempt: Attempt, parent: Task) -> list[Task]:
    find = attempt.services.store.find
    return list(
        (await call_store(partial(find, TaskFilter(parent_id=parent.id), limit=_MOST, newest_first=False))).items
    )
