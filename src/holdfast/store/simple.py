"""The simple interface: save, get, list_by_state, execute_step.

For programs that drive tasks by hand. It is built on the same verbs and guarded by the same table and fences as
everything else, so both can work on one store.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.model.commit import Commit, Expect, Held, Refusal
from holdfast.model.errors import Conflict, HoldfastError, InvalidValue, NotFound
from holdfast.model.operations import Move, Operation, Release, WriteOutcome
from holdfast.model.queries import TaskFilter
from holdfast.model.task import NewTask, Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claimed, NewWorker
from holdfast.store.base import StateStore

_SET_BY_CALLER = frozenset({"name", "agent_id", "user_input", "queue", "priority", "key", "deadline", "schedule"})
_PAGE = 500


class SimpleInterface(StateStore):
    """What a store offers to people who need no engine."""

    async def save(self, task: Task) -> Task:
        """Store the task, or bring the stored one to this state, result and error; return it as it is stored.

        Raises IllegalMove where the table does not allow the change of state, and LeaseHeld while a worker has it.
        """
        (submitted,) = await self.submit([_new(task)])
        if submitted.created:
            return await self._stored(task.id)
        if submitted.task_id != task.id:
            raise Conflict(f"key {task.key!r} is taken by task {submitted.task_id}; save that one, or use another key")
        return await self._save_existing(task)

    async def _save_existing(self, task: Task, tries: int = 5) -> Task:
        current = await self._stored(task.id)
        guard = Expect(states=frozenset({current.state}), revision=current.revision)
        operations = _changes(current, task)
        (verdict,) = await self.commit([Commit(task_id=task.id, guard=guard, operations=operations, actor="save")])
        if verdict.applied:
            return await self._stored(task.id)
        if verdict.refusal is Refusal.CONFLICT and tries:  # somebody changed it between our look and our commit
            return await self._save_existing(task, tries - 1)
        raise verdict.error()

    async def list_by_state(self, state: TaskState) -> list[Task]:
        """Return all tasks in this state, oldest first."""
        tasks: list[Task] = []
        where, after = TaskFilter(states=frozenset({state})), None
        while True:
            page = await self.find(where, limit=_PAGE, after=after, newest_first=False)
            tasks += page.items
            if (after := page.next) is None:
                return tasks

    async def execute_step(
        self, task_id: str, step: Callable[[Task], Task | Awaitable[Task]], *, lease: float = 30.0
    ) -> Task:
        """Run ``step`` on the task while nobody else can change it, and store what it returns: all of it or nothing.

        A lease and a fenced commit, not a lock: however slow ``step`` is, nothing in the database waits for it. If it
        raises, the task stays as it was; if the process dies, others may go on with the task ``lease`` seconds later.
        Raises LeaseHeld where somebody else has it.
        """
        async with self._leased(task_id, lease) as claimed:
            guard = Held(claimed.task.owner or "", claimed.fence, 1)
            try:
                outcome = step(claimed.task)
                changed = await outcome if inspect.isawaitable(outcome) else outcome
                operations = _changes(claimed.task, changed)
            except BaseException:
                await self._apply(task_id, guard)
                raise
            await self._apply(task_id, guard, *operations)
        return await self._stored(task_id)

    async def _apply(self, task_id: str, guard: Held, *operations: Operation) -> None:
        """Write the changes and give the lease back, in one Commit."""
        commit = Commit(task_id=task_id, guard=guard, operations=(*operations, Release()), actor="execute_step")
        (verdict,) = await self.commit([commit])
        if not verdict.applied:
            raise verdict.error()

    @asynccontextmanager
    async def _leased(self, task_id: str, lease: float) -> AsyncIterator[Claimed]:
        """Hold a lease of our own, renewed for as long as the block runs."""
        await self.sweep()  # whoever held it may have died
        worker = await self.register(NewWorker(label="execute_step", lease=lease))
        renewing = asyncio.create_task(self._renew(worker.id, lease / 3))
        try:
            yield await self.acquire(task_id, worker.id)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await self.retire(worker.id)

    async def _renew(self, worker_id: str, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await self.heartbeat(worker_id)
            except HoldfastError:
                return  # the fence refuses what the step would have written

    async def _stored(self, task_id: str) -> Task:
        task = await self.get(task_id)
        if task is None:
            raise NotFound("task", task_id)
        return task


def _new(task: Task) -> NewTask:
    return NewTask(
        id=task.id,
        state=task.state,
        result=task.result,
        error=task.error,
        available_at=task.available_at,
        parent_id=task.parent_id,
        actor="save",
        **{name: getattr(task, name) for name in _SET_BY_CALLER},
    )


def _changes(before: Task, after: object) -> tuple[Operation, ...]:
    if not isinstance(after, Task):
        raise InvalidValue(
            f"a step returns the changed Task, not {type(after).__name__}; use dataclasses.replace(task, state=...)"
        )
    for name in sorted(_SET_BY_CALLER | {"id", "parent_id"}):
        if getattr(before, name) != getattr(after, name):
            raise InvalidValue(f"{name} of task {before.id} is fixed since it was submitted; submit a new task instead")
    operations: list[Operation] = []
    if (after.result, after.error) != (before.result, before.error):
        operations.append(WriteOutcome(result=after.result, error=after.error))
    if after.state is not before.state:
        operations.append(Move(to=after.state, reason="by hand", result=after.result, error=after.error))
    return tuple(operations)
