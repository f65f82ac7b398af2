"""Read everything a store holds, so that two moments, or two stores, can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.model.task import Task
from holdfast.store.base import StateStore

_MOST = 10_000


async def all_tasks(store: StateStore) -> list[Task]:
    """Return every task, oldest first, page by page."""
    tasks: list[Task] = []
    cursor: str | None = None
    while True:
        page = await store.find(limit=_MOST, after=cursor, newest_first=False)
        tasks += page.items
        cursor = page.next
        if cursor is None:
            return tasks


async def snapshot(
    store: StateStore, *, accounts: Iterable[str] = (), channels: Iterable[str] = (), artifacts: Iterable[str] = ()
) -> dict[str, Any]:
    """Return everything that can be read, under descriptive names.

    Accounts that belong to no task, channels and artifacts cannot be listed: pass the ones that matter.
    """
    seen: dict[str, Any] = {"summary": await store.summary(), "facts": await store.recall(limit=_MOST)}
    seen |= {"pauses": await store.pauses(), "queues": await store.queue_settings()}
    seen |= {"limits": await store.limits(), "uses of limits": await store.limit_uses(limit=_MOST)}
    seen["schedules"] = await store.schedules()
    for task in await all_tasks(store):
        seen |= await _snapshot_task(store, task)
    for worker in await store.workers():
        seen[f"worker {worker.id}"] = worker
        seen[f"leases of {worker.id}"] = await store.owned(worker.id)
    for effect in await store.effects(limit=_MOST):
        name = f"evidence on {effect.task_id} {effect.effect_id}"
        seen[name] = await store.evidence(effect.task_id, effect.effect_id)
    for account in accounts:
        seen[f"account {account}"] = await store.accounts(account)
    for channel in channels:
        seen[f"channel {channel}"] = await store.events(channel, limit=_MOST)
    for artifact_id in artifacts:
        seen[f"artifact {artifact_id}"] = await store.artifact(artifact_id)
    return seen


async def _snapshot_task(store: StateStore, task: Task) -> dict[str, Any]:
    """Read the task with its own queries and with ``load``, which must agree."""
    return {
        f"task {task.id}": task,
        f"load of {task.id}": await store.load(task.id),
        f"history of {task.id}": await store.history(task.id),
        f"steps of {task.id}": await store.steps(task.id),
        f"patches of {task.id}": await store.patches(task.id),
        f"checkpoints of {task.id}": await store.checkpoints(task.id),
        f"links of {task.id}": await store.artifact_links(task.id),
    }
