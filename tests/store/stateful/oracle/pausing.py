"""pause, unpause, pauses; and what is paused."""

from __future__ import annotations

from datetime import datetime

from holdfast.model.errors import Conflict
from holdfast.model.pause import LIMIT, Pause, kind_of, nothing_to_pause, pause_of
from holdfast.model.task import Task
from tests.store.stateful.oracle.limiting import check_pausable
from tests.store.stateful.oracle.tables import Tables


def pause(tables: Tables, subject: str, by: str, reason: str | None, now: datetime) -> Pause:
    if subject not in tables.pauses:
        if kind_of(subject) is None:
            _change_task(tables, subject)
        elif kind_of(subject) == LIMIT:
            check_pausable(tables, subject.removeprefix(f"{LIMIT}:"))
        tables.pauses[subject] = Pause(subject=subject, at=now, by=by, reason=reason)
    return tables.pauses[subject]


def _change_task(tables: Tables, task_id: str) -> None:
    if task_id not in tables.tasks:
        raise nothing_to_pause(task_id)
    task = tables.task(task_id)
    if task.state.is_terminal:
        raise Conflict(f"task {task_id} is {task.state}; there is nothing left to pause")
    tables.change_task(task_id, revision=task.revision + 1)


def unpause(tables: Tables, subject: str) -> bool:
    if tables.pauses.pop(subject, None) is None:
        return False
    if kind_of(subject) is None:
        tables.change_task(subject, revision=tables.task(subject).revision + 1)
    return True


def pause_on(tables: Tables, task: Task) -> Pause | None:
    return pause_of(tables.pauses.values(), task_id=task.id, name=task.name, queue=task.queue)


def is_paused(tables: Tables, task: Task) -> bool:
    return pause_on(tables, task) is not None
