"""The simple interface: save, get, list_by_state, execute_step.

For programs that drive tasks by hand. It is built on the same verbs and guarded by the same table and fences as
everything else, so both can work on one store.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from contextlib import suppress
from datetime import datetime

from holdfast.model.canonical import canonical
from holdfast.model.checks import check_member
from holdfast.model.commit import Commit, Expect, Held, Refusal
from holdfast.model.errors import HoldfastError, InvalidValue, KeyConflict, NotFound
from holdfast.model.operations import Move, Operation, Release, WriteOutcome
from holdfast.model.queries import TaskFilter
from holdfast.model.task import NewTask, Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claimed, NewWorker
from holdfast.store import background
from holdfast.store.base import StateStore
from holdfast.store.ownership import check_kept, check_new, name_set_by_store
from holdfast.store.task_store import TaskStep

_SET_BY_CALLER = frozenset(
    {"name", "agent_id", "user_input", "queue", "priority", "key", "deadline", "schedule", "labels"}
)
_PAGE = 500


class SimpleInterface(StateStore):
    """What a store offers to people who need no engine."""

    async def save(self, task: Task) -> Task:
        """Store the task, or bring the stored one to this state, result and error; return it as it is stored.

        ``attempts`` may grow by one, and ``feedback`` change, with a change of state. No other field is this call's to
        change: one that was changed is refused (InvalidValue), never dropped. In a copy that was read before the last
        change, fields of the store's own may be old; they are left as they are.

        The last save wins; ``execute_step`` is for those who must not lose a change. Raises IllegalMove where the table
        does not allow the change of state, and LeaseHeld while a worker holds the task. Reviving a failed task forgets
        its result and error.
        """
        new = _new(task)
        if name_set_by_store(task) is not None and await self.get(task.id) is None:
            check_new(task)
        (submitted,) = await self.submit([new])
        if submitted.created:
            return await self._stored(task.id)
        if submitted.task_id != task.id:
            raise KeyConflict(task.name, task.key or "", submitted.task_id)
        return await self._save_existing(task)

    async def _save_existing(self, task: Task, tries: int = 5) -> Task:
        current = await self._stored(task.id)
        guard = Expect(states=frozenset({current.state}), revision=current.revision)
        operations = _changes(current, task)
        (verdict,) = await self.commit([Commit(task_id=task.id, guard=guard, operations=operations, actor="save")])
        if verdict.applied:
            return await self._stored(task.id)
        if verdict.refusal is Refusal.CONFLICT and tries:  # it was changed between our look and our commit
            return await self._save_existing(task, tries - 1)
        raise verdict.error()

    async def list_by_state(self, state: TaskState) -> list[Task]:
        """Return all tasks in this state, oldest first."""
        check_member("the state", state, TaskState)
        tasks: list[Task] = []
        where, after = TaskFilter(states=frozenset({state})), None
        while True:
            page = await self.find(where, limit=_PAGE, after=after, newest_first=False)
            tasks += page.items
            if (after := page.next) is None:
                return tasks

    async def execute_step(self, task_id: str, step: TaskStep, *, lease: float = 30.0) -> Task:
        """Run ``step`` on the task while no one else can change it, and store all of what it returns, or nothing.

        A lease and a fenced commit, not a lock: however slow ``step`` is, nothing in the database waits for it. If it
        raises, the task stays as it was; if the process dies, others may go on with the task ``lease`` seconds later.
        Raises LeaseHeld where another worker holds it.
        """
        worker = NewWorker(label="execute_step", lease=lease)
        renewing = background.Loop("holdfast-renew", lambda: self._renew(worker.id, lease / 3)).start()
        try:
            claimed = await self._lease(task_id, worker)
            changed = await _run(step, claimed.task)
            guard = Held(worker.id, claimed.fence, 1)
            operations = (*_changes(claimed.task, changed), Release())
            (verdict,) = await self.commit(
                [Commit(task_id=task_id, guard=guard, operations=operations, actor="execute_step")]
            )
            if not verdict.applied:
                raise verdict.error()
        finally:
            # However this ended, also by a cancellation: nothing of ours stays behind.
            await asyncio.shield(asyncio.ensure_future(self._release(worker.id, renewing)))
        return await self._stored(task_id)

    async def _lease(self, task_id: str, worker: NewWorker) -> Claimed:
        while (await self.sweep()).more:  # the worker that held the task may have died
            pass
        await self.register(worker)
        return await self.acquire(task_id, worker.id)

    async def _release(self, worker_id: str, renewing: asyncio.Task[None]) -> None:
        """Give back what the worker still holds, as it stands, and end the worker.

        What fails here is not what the caller has to hear about: the lease runs out by itself.
        """
        await background.end(renewing)
        with suppress(HoldfastError):
            await self.heartbeat(worker_id)  # a write: it waits for any of ours that a cancellation left under way
            for lease in await self.owned(worker_id):
                guard = Held(worker_id, lease.fence, 1)
                await self.commit([Commit(task_id=lease.task_id, guard=guard, operations=(Release(),))])
            await self.retire(worker_id)

    async def _renew(self, worker_id: str, every: float) -> None:
        await asyncio.sleep(every)
        with suppress(HoldfastError):  # if the lease is lost, the fence refuses what the step would have written
            await self.heartbeat(worker_id)

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


async def _run(step: TaskStep, task: Task) -> Task:
    """Run an async step on the loop, and any other in a thread: it must not keep its own lease from being renewed."""
    if inspect.iscoroutinefunction(step):
        changed: Task = await step(task)
        return changed
    calling = asyncio.ensure_future(asyncio.to_thread(step, task))
    try:
        outcome = await asyncio.shield(calling)
    except asyncio.CancelledError:
        calling.add_done_callback(_drop_coroutine)  # the thread goes on, and may still return one
        raise
    return await outcome if inspect.isawaitable(outcome) else outcome


def _drop_coroutine(calling: asyncio.Task[Task | Awaitable[Task]]) -> None:
    """Close a coroutine that no code is left to await."""
    if not calling.cancelled() and calling.exception() is None and inspect.iscoroutine(outcome := calling.result()):
        outcome.close()


def _changes(before: Task, after: object) -> tuple[Operation, ...]:
    if not isinstance(after, Task):
        raise InvalidValue(
            f"a step returns the changed Task, not {type(after).__name__}; use dataclasses.replace(task, state=...)"
        )
    for name in sorted(_SET_BY_CALLER | {"id", "parent_id"}):
        if not _same(getattr(before, name), getattr(after, name)):
            raise InvalidValue(f"{name} of task {before.id} is fixed since it was submitted; submit a new task instead")
    check_kept(before, after)
    operations: list[Operation] = []
    if not (_same(after.result, before.result) and _same(after.error, before.error)):
        operations.append(WriteOutcome(result=after.result, error=after.error))
    if after.state is not before.state:
        operations.append(
            Move(
                to=after.state,
                reason="by hand",
                result=after.result,
                error=after.error,
                counts_attempt=after.attempts > before.attempts,
                feedback=after.feedback if after.feedback != before.feedback else None,
            )
        )
    return tuple(operations)


def _same(one: object, other: object) -> bool:
    """Compare as it will be stored: 1 and True are equal in Python, and not the same result."""
    return one == other and (isinstance(one, datetime) or canonical(one) == canonical(other))
