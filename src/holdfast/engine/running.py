"""Running one task by name, here and now: what a worker does for a queue, for a single task."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.engine.children import stop_orphans
from holdfast.engine.handle import LOOK_EVERY, outcome_of
from holdfast.engine.host import Host
from holdfast.engine.services import Services
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

_SOONEST_LOOK = 0.01


async def run_task(services: Services, task_id: str, *, lease: float) -> Any:  # noqa: ANN401
    """Work on the task until it has ended; return its result, or raise what it ended with.

    A task that has ended already is not run again. One that another worker holds is waited for.
    """
    changed = asyncio.Event()
    host: Host | None = None
    try:
        with services.watcher.watch(f"task:{task_id}", changed.set):
            while True:
                changed.clear()
                task = await services.store.get(task_id)
                if task is None:
                    raise NotFound("task", task_id)
                definition = services.definitions.get(task.name)
                if task.state.is_terminal:
                    return outcome_of(task, Any if definition is None else definition.returns)
                if definition is None:
                    raise InvalidValue(
                        f"task {task_id} is {task.name!r}, which is not defined here; import its module first"
                    )
                if host is None:
                    host = Host(services, lease=lease, label="run", details={"task": task_id}, on_free=changed.set)
                    await host.start()
                if not await _work_on(host, task):
                    swept = await services.store.sweep()
                    failed = (*swept.poisoned, *swept.failed)
                    await stop_orphans(services.store, failed, actor=host.lease.worker_id)
                    ahead = LOOK_EVERY if swept.next_due is None else services.time.seconds_until(swept.next_due)
                    await services.alarms.wait(changed, min(max(ahead, _SOONEST_LOOK), LOOK_EVERY))
    finally:
        if host is not None:
            await host.stop(grace=0.0)


async def _work_on(host: Host, task: Task) -> bool:
    """Make one attempt, if the task can be had; say whether there was one."""
    is_due = task.available_at is None or host.services.time.seconds_until(task.available_at) <= 0
    ready = task.state is TaskState.REVIEW or (task.state is TaskState.PENDING and is_due)
    if not ready or task.owner is not None:
        return False
    try:
        claimed = await host.services.store.acquire(task.id, host.lease.worker_id)
    except Conflict:  # somebody was faster, or it has ended
        return False
    await asyncio.wait([host.begin(claimed)])
    return True
