"""set_queue, queue_settings; and which queues have a place."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from holdfast.model.errors import NoPlace
from holdfast.model.queue_settings import QueueChange, QueueSettings
from holdfast.model.task import Task
from tests.store.stateful.oracle.submitting import pending_in
from tests.store.stateful.oracle.tables import Tables
from tests.store.stateful.oracle.turning import begin_again


def set_queue(tables: Tables, name: str, change: QueueChange, now: datetime) -> QueueSettings:
    before = tables.queues.get(name, QueueSettings(name=name))
    tables.queues[name] = replace(before, **change.given())  # type: ignore[arg-type]
    if tables.queues[name].retention is None:
        tables.prunes_at.pop(name, None)
    elif tables.queues[name].retention != before.retention:
        tables.prunes_at[name] = now
    if tables.queues[name].fair_by != before.fair_by:
        begin_again(tables, name)
    return settings_of(tables, name)


def settings_of(tables: Tables, name: str) -> QueueSettings:
    settings = tables.queues[name]
    working = 0 if settings.concurrency is None else working_in(tables, name)
    return replace(settings, pending=pending_in(tables, name), working=working)


def working_in(tables: Tables, queue: str) -> int:
    tasks = (row.task for row in tables.tasks.values())
    return sum(task.queue == queue and task.owner is not None and not task.resting for task in tasks)


def free_places(tables: Tables, queue: str) -> int | None:
    settings = tables.queues.get(queue)
    if settings is None or settings.concurrency is None:
        return None
    return max(0, settings.concurrency - working_in(tables, queue))


def no_place(tables: Tables, task: Task) -> NoPlace | None:
    if free_places(tables, task.queue) != 0:
        return None
    return NoPlace(task.id, task.queue, tables.queues[task.queue].concurrency or 0)
