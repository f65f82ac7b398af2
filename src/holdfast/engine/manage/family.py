"""A task and the tasks above and below it, as far as its budget needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.engine.manage.rests import read_rests
from holdfast.model.queries import TaskFilter
from holdfast.model.task import Task
from holdfast.model.walltime import Life
from holdfast.store.base import StateStore

_PAGE = 500
_MOST_APPROVALS = 10_000
_MOST_ABOVE = 32


async def limited_above(store: StateStore, task: Task) -> list[str]:
    """Return the tasks above a task that have any limit, nearest first: the task also uses up their budgets."""
    found: list[str] = []
    parent = task.parent_id
    while parent is not None and len(found) < _MOST_ABOVE:
        if any(line.limit is not None for line in await store.accounts(parent)):
            found.append(parent)
        above = await store.get(parent)
        parent = None if above is None else above.parent_id
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read about one task."""

    revision: int
    life: Life
    is_over: bool
    """The task and all tasks below it had ended. Only a parent can start them again, and that changes its revision."""


class Family:
    """Reads the lives of a task and its descendants. Later reads only read those that have changed."""

    def __init__(self, store: StateStore, task_id: str) -> None:
        """``task_id`` is the task whose wall time is needed."""
        self._store = store
        self._task_id = task_id
        self._known: dict[str, _Known] = {}

    async def read(self, *, has_children: bool = True) -> Life:
        """Return the task's life as it is now. Without ``has_children``, children are not read from the store."""
        below = [await self._read(child) for child in await self._children(self._task_id)] if has_children else []
        return await self._life(self._task_id, below)

    async def _read(self, task: Task) -> _Known:
        known = self._known.get(task.id)
        is_same = known is not None and known.revision == task.revision
        if known is not None and is_same and known.is_over:
            return known
        below = [await self._read(child) for child in await self._children(task.id)]
        if known is not None and is_same:
            life = replace(known.life, children=tuple(child.life for child in below))
        else:
            life = await self._life(task.id, below)
        is_over = task.state.is_terminal and all(child.is_over for child in below)
        self._known[task.id] = known = _Known(task.revision, life, is_over)
        return known

    async def _life(self, task_id: str, below: Sequence[_Known]) -> Life:
        approvals = await self._store.approvals(task_id=task_id, limit=_MOST_APPROVALS)
        # Without a question and without children, the task cannot have waited for a person.
        rests = await read_rests(self._store, task_id) if approvals or below else []
        return Life(
            history=await self._store.history(task_id),
            approvals=approvals,
            children=tuple(child.life for child in below),
            rests=rests,
        )

    async def _children(self, task_id: str) -> list[Task]:
        children: list[Task] = []
        after = None
        while True:
            wanted = TaskFilter(parent_id=task_id)
            page = await self._store.find(wanted, limit=_PAGE, after=after, newest_first=False)
            children += page.items
            after = page.next
            if after is None:
                return children
