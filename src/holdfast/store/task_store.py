"""TaskStore: the smallest store there is. Four methods, for programs that drive their tasks by hand.

Every store of Holdfast is one. A class of your own needs nothing but these methods to be one too: it can keep tasks
elsewhere, or stand in front of another store and count, log or check what passes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, runtime_checkable

from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

TaskStep: TypeAlias = Callable[[Task], Task | Awaitable[Task]]
"""What ``execute_step`` calls: it gets the task and returns it changed."""


@runtime_checkable
class TaskStore(Protocol):
    """Where tasks are kept. ``hold.store``, ``open_store(...)`` and whatever has these four methods."""

    @abstractmethod
    async def save(self, task: Task) -> Task:
        """Store a new task, or bring the stored one to this state, result and error; return it as it is stored."""

    @abstractmethod
    async def get(self, task_id: str) -> Task | None:
        """Return the task; None if there is none."""

    @abstractmethod
    async def list_by_state(self, state: TaskState) -> list[Task]:
        """Return all tasks in this state, oldest first."""

    @abstractmethod
    async def execute_step(self, task_id: str, step: TaskStep) -> Task:
        """Call ``step`` with the task while nothing else can change it, and store what it returns: all or nothing."""
