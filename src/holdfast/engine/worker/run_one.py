"""Running a single task in this process, as a worker runs the tasks of a queue.

The task stays in this process until it has ended, even if other workers are alive. While it waits it is a resident, and
between two attempts it keeps its lease. This process waits for another one only if that one holds the task at the
start.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from holdfast.engine.api.handle import LOOK_EVERY, outcome_of
from holdfast.engine.runtime import log
from holdfast.engine.runtime.services import Services
from holdfast.engine.steps.children import stop_orphans
from holdfast.engine.worker.host import Host
from holdfast.model.errors import Conflict, InvalidValue, NoPlace, NotFound, TaskFailed, WorkerDead
from holdfast.model.pause import pause_of
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claimed

_SOONEST_LOOK = 0.01


async def run_task(services: Services, task_id: str, *, lease: float, at_once: bool = False) -> Any:  # noqa: ANN401
    """Work on the task until it has ended; return its result, or raise its failure.

    A task that has ended already is not run again. If another worker holds the task, wait for it. ``at_once`` starts a
    task that workers may not claim yet: its delay only kept it for this process.
    """
    changed = asyncio.Event()
    host: Host | None = None
    due = services.time.now() if at_once else None
    try:
        with services.watcher.watch(f"task:{task_id}", changed.set):
            while True:
                changed.clear()
                task = await services.store.get(task_id)
                if task is None:
                    raise NotFound("task", task_id)
                definition = services.definitions.get(task.name)
                if task.state.is_terminal:
                    return _outcome(task, Any if definition is None else definition.returns, was_run=host is not None)
                if definition is None:
                    raise InvalidValue(
                        f"task {task_id} is {task.name!r}, which is not defined here; import its module first"
                    )
                if host is None:
                    details = {"task": task_id}
                    host = Host(services, lease=lease, label="run", details=details, on_free=changed.set, keeps=task_id)
                    await host.start()
                if (claimed := await _lease(host, task)) is None:
                    ahead, due = LOOK_EVERY, None
                else:
                    begin_at = due or claimed.task.available_at
                    ahead = 0.0 if begin_at is None else services.time.seconds_until(begin_at)
                    if ahead <= 0 or _is_to_stop(claimed.task, services.time.now()):
                        due = await _work_on(host, claimed)
                        continue
                swept = await services.store.sweep()
                failed = (*swept.poisoned, *swept.failed)
                await stop_orphans(services.store, failed, by=host.lease.worker_id)
                if swept.next_due is not None:
                    ahead = min(ahead, services.time.seconds_until(swept.next_due))
                await services.alarms.wait(changed, min(max(ahead, _SOONEST_LOOK), LOOK_EVERY))
    finally:
        if host is not None:
            await host.stop(grace=0.0)


def _outcome(task: Task, returns: object, *, was_run: bool) -> Any:  # noqa: ANN401
    """Return the result of an ended task, or raise its failure. If it was not run here, add a note how to run it."""
    try:
        return outcome_of(task, returns)
    except TaskFailed as error:
        if not was_run:
            error.add_note(
                f"task {task.id} had failed before and was not run. To go on where it stopped: hold.run({task.id!r}, "
                f"resume=True). To start over: hold.retry({task.id!r}), then hold.run({task.id!r})"
            )
        raise


async def _lease(host: Host, task: Task) -> Claimed | None:
    """Lease the task, or return its current record if this process holds it already; None if it cannot be leased."""
    if task.owner not in {None, host.lease.worker_id} or task.state not in {TaskState.PENDING, TaskState.REVIEW}:
        return None
    try:
        return await host.services.store.acquire(task.id, host.lease.worker_id)
    except Conflict as refused:  # another worker has claimed it, it has ended, it is paused, or its queue has no place
        await _warn_if_it_waits(host, task, refused)
        return None
    except WorkerDead as error:
        await host.register_again(error.worker_id)
        return None


async def _warn_if_it_waits(host: Host, task: Task, refused: Conflict) -> None:
    """Log once that a pause or a limit keeps the task back: otherwise this process would wait for no visible reason."""
    if isinstance(refused, NoPlace):
        cause = f"no place of {refused.queue or refused.key}"
    else:
        pauses = await host.services.store.pauses()
        paused = pause_of(pauses, task_id=task.id, name=task.name, queue=task.queue)
        if paused is None:
            return
        cause = paused.subject
    if cause not in host.logged_waits:
        host.logged_waits.add(cause)
        log.logger.warning("%s; until then this process waits", refused, extra={"task_id": task.id})


def _is_to_stop(task: Task, now: datetime) -> bool:
    """Return whether the task must end now, before its start time. Only an attempt can end a leased task."""
    return task.cancel_requested is not None or (task.deadline is not None and task.deadline <= now)


async def _work_on(host: Host, claimed: Claimed) -> datetime | None:
    """Make one attempt. Return when the next one is due, or None if there is none."""
    running = host.begin(claimed)
    attempt = host.attempts[claimed.task.id]
    await asyncio.wait([running])
    return attempt.again_at
