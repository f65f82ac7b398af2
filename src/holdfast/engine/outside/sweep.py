"""Expired leases and cancelled tasks of agents outside: no worker looks after them."""

from __future__ import annotations

from holdfast.engine.manage.cancel import cancel
from holdfast.engine.outside.offer import found
from holdfast.model.queries import TaskFilter
from holdfast.model.task import HANDOVER, Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore

SWEEP = "sweep"
_LOOKED_AT = 500


async def sweep(store: StateStore) -> None:
    """Take tasks back from agents that are gone, and end the ones that were to be cancelled.

    The holder of a task ends it when it is to be cancelled. A worker of ours that claims it next does so too, but no
    worker claims tasks of this name.
    """
    swept = await store.sweep()
    for task_id in (*swept.recovered, *swept.woken):
        await end_if_cancelled(store, task_id)


async def tidy(store: StateStore) -> None:
    """Sweep, and end tasks that were to be cancelled and that another process's sweep has taken back."""
    await sweep(store)
    waiting = TaskFilter(states=frozenset({TaskState.PENDING}), name=HANDOVER)
    for task in (await store.find(waiting, limit=_LOOKED_AT)).items:
        if task.cancel_requested is not None:
            await end_if_cancelled(store, task.id)


async def end_if_cancelled(store: StateStore, task_id: str) -> Task:
    """End a task that was to be cancelled and has no holder; return it as it stands. Raises NotFound."""
    task = await found(store, task_id)
    if task.name != HANDOVER or task.cancel_requested is None or task.state is not TaskState.PENDING:
        return task
    await cancel(store, task_id, task.cancel_requested, by=SWEEP)
    return await found(store, task_id)
