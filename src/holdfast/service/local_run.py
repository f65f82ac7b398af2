"""Run one task in this process, and the children it waits for: there may be no other worker to run them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from holdfast.engine.api.handle import Handle
from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.attempt.outcome import KEPT_FOR
from holdfast.engine.worker.liveness import PROCESS, is_gone, this_process
from holdfast.engine.worker.run_one import run_task
from holdfast.model.errors import TaskCancelled, TaskFailed
from holdfast.model.queries import TaskFilter
from holdfast.model.transitions import OPEN
from holdfast.model.worker import Worker
from holdfast.service.changes import follow

HEAD_START = KEPT_FOR
"""Seconds for which workers leave a new task to the process that is about to run it."""


def is_over(hold: Holdfast, worker: Worker) -> bool:
    """Return whether a worker does nothing any more: it is of this process, or its process is gone."""
    boot_id, one_machine = hold.services.clock.boot_id, not hold.store.capabilities.multi_machine
    is_ours: bool = worker.details.get(PROCESS) == this_process(boot_id)
    return is_ours or is_gone(worker.id, [worker], boot_id, one_machine=one_machine)


async def run_family(hold: Holdfast, handle: Handle[Any], *, lease: float, at_once: bool = False) -> Any:  # noqa: ANN401
    """Work on a task until it has ended, and on its children and theirs; return its result, or raise its failure.

    ``at_once``: see ``run_task``.
    """
    helpers: dict[str, asyncio.Task[None]] = {}
    looking = asyncio.create_task(_help(hold, handle.id, helpers, lease))
    working = asyncio.create_task(run_task(hold.services, handle.id, lease=lease, at_once=at_once))
    try:
        await asyncio.wait((looking, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            looking.result()  # raises its error: without its children the task would wait for ever
        return working.result()
    finally:
        ending = (looking, working, *helpers.values())
        for one in ending:
            one.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def _help(hold: Holdfast, task_id: str, helpers: dict[str, asyncio.Task[None]], lease: float) -> None:
    """Run every child as it appears, if the application defines its task."""

    async def look() -> list[str]:
        known, found = [task_id, *helpers], []
        for parent in known:
            page = await hold.store.find(TaskFilter(parent_id=parent, states=OPEN), limit=1000, newest_first=False)
            found += [child.id for child in page.items if child.name in hold.definitions.names]
        return found

    async for view in follow(hold.store, look):
        for child in [child for child, helper in helpers.items() if helper.done()]:
            del helpers[child]
        for child in view.seen:
            if child not in helpers:
                helpers[child] = asyncio.create_task(_run(hold, child, lease))


async def _run(hold: Holdfast, task_id: str, lease: float) -> None:
    with suppress(TaskFailed, TaskCancelled):  # its parent gets the error
        await hold.run(task_id, lease=lease)
