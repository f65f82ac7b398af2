"""What time made true, for tasks of agents outside: no worker of theirs looks after them."""

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
    """Take tasks back from those who are gone, and end the ones that were to be cancelled.

    Whoever holds a task ends it when it is to be cancelled. A worker of ours that claims it next does so too; for
    tasks of this name there is none.
    """
    swept = await store.sweep()
    for task_id in (*swept.recovered, *swept.woken):
        await end_if_cancelled(store, task_id)


async def tidy(store: StateStore) -> None:
    """Sweep, and end what was to be cancelled and was taken back by somebody else's sweep."""
    await sweep(store)
    waiting = TaskFilter(states=frozenset({TaskState.PENDING}), name=HANDOVER)
    for task in (await store.find(waiting, limit=_LOOKED_AT)).items:
        if task.cancel_requested is not None:
            await end_if_cancelled(store, task.id)


async def end_if_cancelled(store: StateStore, task_id: str) -> Task:
    """End a task that was to be cancelled and that nobody holds; return it as it stands. Raises NotFound."""
    task = await found(store, task_id)
    if task.name != HANDOVER or task.cancel_requested is None or task.state is not TaskState.PENDING:
        return task
    await cancel(store, task_id, task.cancel_requested, by=SWEEP)
    return await found(store, task_id)
