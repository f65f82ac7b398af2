"""A store with a task in every situation there is, made by real runs, and what each of them is called."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast import Handle, Holdfast, ManualClock, Task, TaskState
from holdfast.model.queries import TaskFilter
from holdfast.model.worker import Claim, NewWorker
from holdfast.service.overview import read_overview
from tests.cli.render import application
from tests.cli.render.application import ESCAPE

SETTLED = {
    "approval": TaskState.WAITING,
    "question": TaskState.WAITING,
    "doubt": TaskState.WAITING,
    "sleep": TaskState.WAITING,
    "event": TaskState.WAITING,
    "child": TaskState.WAITING,
    "budget": TaskState.WAITING,
    "agent": TaskState.WAITING,
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
    "escape": TaskState.COMPLETED,
    "keyed": TaskState.COMPLETED,
}
"""Where a worker leaves those it works on."""


@dataclass(frozen=True)
class Museum:
    """The store, and its tasks by the situation they are in."""

    url: str
    ids: dict[str, str]

    def short(self, name: str) -> str:
        return self.ids[name][-8:]


def open_museum(folder: Path) -> Museum:
    """Make the store."""
    url = f"sqlite:///{folder}/museum.db"
    return Museum(url, asyncio.run(_make(url)))


async def _make(url: str) -> dict[str, str]:
    hold = Holdfast(url)
    for name in application.hold.definitions.names:
        definition = application.hold.definitions.get(name)
        assert definition is not None
        hold.register(definition)
    async with hold:
        ids = await _settle(hold)
        ids["fork"] = (await hold.fork(ids["agent"], at="check_disk:2.0", key="fork", by="ann")).id
        await hold.cancel(ids["fork"], "only tried", by="ann")
        ids["cancelled"] = (await hold.submit("greet", "sophie", queue="remote")).id
        await hold.cancel(ids["cancelled"], "changed my mind", by="ann")
        ids["pending"] = (await hold.submit("greet", "sophie", queue="remote", priority=3)).id
        ids["delayed"] = (await hold.submit("greet", "later", queue="remote", delay=3600)).id
        review = await hold.store.save(Task(agent_id="by-hand", user_input="look at it", state=TaskState.REVIEW))
        ids["review"] = review.id
        ids["running"] = await _claimed(hold, hold, "vulcan", lease=50_000)
        # Claimed by a clock that is two minutes behind: for all others this lease is over at once.
        async with Holdfast(url, clock=ManualClock(datetime.now(UTC) - timedelta(minutes=2))) as earlier:
            ids["silent"] = await _claimed(hold, earlier, "ghost", lease=60)
    return ids


async def _settle(hold: Holdfast) -> dict[str, str]:
    submitted: dict[str, Handle[Any]] = {
        "approval": await hold.submit("ask"),
        "question": await hold.submit("wonder"),
        "doubt": await hold.submit("doubt"),
        "sleep": await hold.submit("doze"),
        "event": await hold.submit("listen"),
        "child": await hold.submit("delegate_elsewhere"),
        "budget": await hold.submit("spender", "Look twice."),
        "agent": await hold.submit("devops", "The disk is full. Fix it."),
        "completed": await hold.submit("greet", "you", queue="mines"),
        "failed": await hold.submit("fail", queue="mines"),
        "escape": await hold.submit("greet", ESCAPE),
        "keyed": await hold.submit("greet", "ann", key="greet-ann", labels={"tenant": "acme", "kind": "x=y"}),
    }
    ids = {name: handle.id for name, handle in submitted.items()}
    async with hold.worker(queues=["default", "mines"], lease=600):
        for name, state in SETTLED.items():
            while not await _is_settled(hold, ids[name], state):  # noqa: ASYNC110 - the store knows
                await asyncio.sleep(0.02)
    return ids


async def _is_settled(hold: Holdfast, task_id: str, state: TaskState) -> bool:
    """Say whether a task is in its final situation. A doubt has to reach a person: until then the engine finds out."""
    seen = await read_overview(hold, task_id)
    return seen.task.state is state and all(doubt.decisions for doubt in seen.doubts)


async def _claimed(hold: Holdfast, theirs: Holdfast, label: str, *, lease: float) -> str:
    """Leave a task to a worker that is gone, registered by their clock: only its lease shows whether it lives."""
    handle: Handle[Any] = await hold.submit("greet", label, queue=label)
    details = {"host": "host", "pid": 4711, "queues": [label], "tasks": ["greet"], "concurrency": 4}
    worker = await theirs.store.register(NewWorker(label=label, lease=lease, details=details))
    claimed = await theirs.store.claim(Claim(worker_id=worker.id, number=1, limit=1, queues=[label], names=["greet"]))
    assert [one.task.id for one in claimed] == [handle.id]
    assert (await hold.store.count(TaskFilter(owner=worker.id))) == {TaskState.RUNNING: 1}
    return handle.id
