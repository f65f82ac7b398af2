"""Many tasks at once: which ones, and what became of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from holdfast.model.errors import HoldfastError, StoreError
from holdfast.model.queries import TaskFilter
from holdfast.model.task import JsonValue, Task
from holdfast.store.base import StateStore

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one task of several."""

    task_id: str
    state: str | None
    """Its state afterwards; None where nothing was done."""
    error: HoldfastError | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {"id": self.task_id, "state": self.state, "error": None if self.error is None else str(self.error)}


async def every(store: StateStore, where: TaskFilter) -> AsyncIterator[Task]:
    """Yield all the tasks that fit, oldest first, page by page."""
    after: str | None = None
    while True:
        page = await store.find(where, limit=_PAGE, after=after, newest_first=False)
        for task in page.items:
            yield task
        if (after := page.next) is None:
            return


async def do_each(task_ids: Sequence[str], act: Callable[[str], Awaitable[str]]) -> AsyncIterator[Done]:
    """Call ``act`` for each task, and yield what became of it. A task that refuses does not stop the others.

    A store that does not answer does: tasks not yielded by then are unchanged, except perhaps the one under way.
    """
    for task_id in task_ids:
        try:
            done = Done(task_id, await act(task_id))
        except StoreError:
            raise
        except HoldfastError as error:
            done = Done(task_id, None, error)
        yield done
