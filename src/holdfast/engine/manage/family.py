"""A task, the tasks below it and those above it, as its budget sees them."""

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
    """Return the tasks above one that have limits of any kind, nearest first: it draws on their accounts, too."""
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
    """What was read of one task."""

    revision: int
    life: Life
    is_over: bool
    """The task and all below it had ended. A parent alone can begin them again, and that changes its own revision."""


class Family:
    """Reads the lives of a task and its descendants; again only those that changed since."""

    def __init__(self, store: StateStore, task_id: str) -> None:
        """``task_id`` is the task whose clock is asked for."""
        self._store = store
        self._task_id = task_id
        self._known: dict[str, _Known] = {}

    async def read(self, *, has_children: bool = True) -> Life:
        """Return the task's life as it is now. Without ``has_children`` the store is not asked for any."""
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
        # Without a question and without children it has waited for no person, wherever it did so.
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
