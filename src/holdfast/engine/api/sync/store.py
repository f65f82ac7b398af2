"""hold.sync.store: the four methods of a TaskStore, for blocking code."""

from __future__ import annotations

from holdfast.engine.api.sync.memory import Wait
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.store.task_store import TaskStep, TaskStore


class SyncTaskStore:
    """The calls of TaskStore, which block until they are done."""

    __slots__ = ("_store", "_wait")

    def __init__(self, store: TaskStore, wait: Wait) -> None:
        """Only SyncHoldfast creates this."""
        self._store = store
        self._wait = wait

    def save(self, task: Task) -> Task:
        """See TaskStore."""
        return self._wait(self._store.save(task))

    def get(self, task_id: str) -> Task | None:
        """See TaskStore."""
        return self._wait(self._store.get(task_id))

    def list_by_state(self, state: TaskState) -> list[Task]:
        """See TaskStore."""
        return self._wait(self._store.list_by_state(state))

    def execute_step(self, task_id: str, step: TaskStep) -> Task:
        """See TaskStore."""
        return self._wait(self._store.execute_step(task_id, step))
