"""Agents outside, as the service knows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast import Holdfast, Step, Task
from holdfast.engine.outside import ClaimedTask, LeaseHolder, LeaseToken, claim, offer
from holdfast.model.agent_state import KnownFact
from holdfast.model.patch import StatePatch
from holdfast.model.task import DEFAULT_QUEUE, HANDOVER, JsonValue
from holdfast.model.worker import WorkerState

NOTHING = StatePatch()
SILENCE = 60.0
"""Seconds these agents may stay silent."""


@dataclass(frozen=True)
class Outside:
    """An agent of another framework."""

    hold: Holdfast
    name: str

    @property
    def actor(self) -> str:
        return f"mcp:{self.name}"

    async def offer(self, goal: str = "Free the disk", **options: Any) -> Task:  # noqa: ANN401
        return await offer(self.hold, goal, by=self.actor, **options)

    async def ask(
        self,
        task_id: str | None = None,
        *,
        names: Sequence[str] = (HANDOVER,),
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        seconds: float = SILENCE,
    ) -> ClaimedTask | None:
        """Claim what there is, if there is something."""
        return await claim(self.hold, by=self.actor, names=names, queues=queues, task_id=task_id, seconds=seconds)

    async def take(self, task_id: str | None = None, **options: Any) -> ClaimedTask:  # noqa: ANN401
        """Claim something that has to be there."""
        taken = await self.ask(task_id, **options)
        assert taken is not None
        return taken

    def holding(self, lease: LeaseToken) -> LeaseHolder:
        return LeaseHolder(self.hold, lease, by=self.actor)

    async def step(self, lease: LeaseToken, key: str, output: JsonValue = None, patch: StatePatch = NOTHING) -> bool:
        """Record a step; say whether it had been recorded before."""
        return (await self.holding(lease).complete_step(key, output, patch)).replayed


def facts(**known: JsonValue) -> StatePatch:
    """A patch that adds facts."""
    return StatePatch(append_facts=tuple(KnownFact(key=key, value=value, source="t") for key, value in known.items()))


VERBS: dict[str, Callable[[LeaseHolder], Awaitable[object]]] = {
    "renew": lambda holding: holding.renew(),
    "complete_step": lambda holding: holding.complete_step("late", 1, NOTHING),
    "report": lambda holding: holding.report("still here", 50),
    "patch": lambda holding: holding.patch(facts(late=True)),
    "change": lambda holding: holding.change(),
    "ask": lambda holding: holding.ask("may I?"),
    "finish": lambda holding: holding.finish("mine"),
    "give_up": lambda holding: holding.give_up("cannot"),
    "release": lambda holding: holding.release("bye", facts(late=True)),
}
"""Everything the holder of a lease can do."""


async def task_of(hold: Holdfast, task_id: str) -> Task:
    task = await hold.store.get(task_id)
    assert task is not None
    return task


async def outside_steps(hold: Holdfast, task_id: str) -> dict[str, Step]:
    """The lines agents outside wrote, by key."""
    return {step.key: step for step in await hold.store.steps(task_id) if step.kind == "outside"}


async def living_workers(hold: Holdfast) -> int:
    return sum(worker.state is WorkerState.LIVE for worker in await hold.store.workers())


async def everything(hold: Holdfast, task_id: str) -> object:
    """All that could be changed about a task."""
    return (
        await hold.store.get(task_id),
        await hold.store.steps(task_id),
        await hold.store.history(task_id),
        await hold.store.patches(task_id),
        await hold.store.artifact_links(task_id),
        await hold.store.events(f"task:{task_id}"),
    )
