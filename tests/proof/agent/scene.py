"""A scene: a database, a ledger, the workers on it, and what can be known about it from outside."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from holdfast import Holdfast, Task, TaskDefinition, Usage
from holdfast.model.queries import TaskFilter
from holdfast.testing.chat_server import Exchange
from holdfast.testing.ledger import Entry, Ledger
from holdfast.testing.snapshot import snapshot
from tests.proof.agent.endpoint import Endpoint
from tests.proof.agent.life import Life, Missed, Orders, Stage
from tests.proof.engine.conditions import eventually

AT_ONCE = 16
"""Tasks whose workers die at the same time. Mostly they wait: for a lease to run out, for a call to settle."""

CHANCES = 4
"""Scenes a kill gets on a machine that stands still so long that a worker loses its lease before its trap."""

T = TypeVar("T")

_numbers = itertools.count(1)
"""Of tasks: all scenes share a ledger, which knows them by their numbers."""


@dataclass
class Scene:
    """One task on a database."""

    hold: Holdfast
    url: str
    ledger: Ledger
    folder: Path
    number: int = field(default_factory=lambda: next(_numbers))

    def another(self) -> Scene:
        """Return the scene of another task on the same database."""
        return replace(self, number=next(_numbers))

    @property
    def text(self) -> str:
        """What the agent is asked; also the key and the queue of its task."""
        return f"I'm out of disk space. Fix it. (No. {self.number})"

    def start(
        self,
        label: str,
        cast: Callable[[Holdfast, Stage], TaskDefinition[..., str]],
        **orders: Any,  # noqa: ANN401 - what Orders takes
    ) -> Life:
        """Start a worker, which works until the task is done unless its orders say otherwise."""
        log = self.folder / f"{self.number}-{label}.log"
        return Life(Orders(url=self.url, log=log, cast=cast, text=self.text, **orders))

    async def task(self) -> Task:
        """Return the task as it stands."""
        [task] = (await self.hold.store.find(TaskFilter(key=self.text))).items
        return task

    async def child(self) -> Task:
        """Return its only child."""
        [child] = (await self.hold.store.find(TaskFilter(parent_id=(await self.task()).id))).items
        return child

    async def asked(self, endpoint: Endpoint, task: Task) -> list[Exchange]:
        """Return what an agent asked, once the endpoint has noticed which clients are gone."""
        asked: list[Exchange] = []

        async def all_is_over() -> bool:
            asked[:] = await asyncio.to_thread(endpoint.asked, task.id)
            return all(exchange.outcome != "open" for exchange in asked)

        await eventually("no answer is under way", all_is_over)
        return asked

    async def paid(self, endpoint: Endpoint, task: Task) -> list[Usage]:
        """Return what each answer took that was given whole: a real endpoint wants it paid."""
        asked = await self.asked(endpoint, task)
        return [endpoint.usage(exchange) for exchange in asked if exchange.outcome == "completed"]

    async def everything(self) -> dict[str, Any]:
        """All that the store holds about the task."""
        task = await self.task()
        found = await snapshot(self.hold.store, accounts=[task.id])
        return {name: rows for name, rows in found.items() if task.id in name}

    def calls(self) -> list[Entry]:
        """What the ledger says was really done for the task."""
        return [entry for entry in self.ledger.entries() if entry.body == self.number]


async def side_by_side(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do all of these, a few at a time; return what they return, or raise whatever any of them raised."""
    room = asyncio.Semaphore(AT_ONCE)

    async def do(work: Coroutine[Any, Any, T]) -> T:
        async with room:
            return await work

    done = await asyncio.gather(*map(do, works), return_exceptions=True)
    if failed := [one for one in done if isinstance(one, Exception)]:
        raise ExceptionGroup(f"{len(failed)} of {len(done)} failed", failed)
    return [one for one in done if not isinstance(one, BaseException)]


async def insisting(play: Callable[[Scene], Coroutine[Any, Any, T]], scene: Scene) -> T:
    """Play a scene with a kill, again on another one if the kill was missed."""
    for _ in range(CHANCES - 1):
        with contextlib.suppress(Missed):
            return await play(scene)
        scene = scene.another()
    return await play(scene)
