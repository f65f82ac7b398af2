"""Handle: one task, seen from outside. submit returns it, and any process can make it from an id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Generic, TypeVar

from holdfast.engine.manage.cancel import cancel
from holdfast.engine.runtime.services import Services
from holdfast.engine.runtime.store_retry import call_store, endless_pauses
from holdfast.engine.steps.waits import event_channel
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import PRUNED, DeadlineExceeded, NotFound, StoreError, TaskCancelled, TaskFailed
from holdfast.model.failure import Failure
from holdfast.model.payload import from_json
from holdfast.model.records import Event
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import WorkerState
from holdfast.store.transaction import refuse_inside

R = TypeVar("R")

_HANDLE = "the handle of a task"

LOOK_EVERY = 1.0
"""Seconds between two polls of a task, in case all hints are missing."""


class Handle(Generic[R]):
    """One task, seen from outside."""

    __slots__ = ("_returns", "_services", "id")

    def __init__(self, services: Services, task_id: str, returns: Any = Any) -> None:  # noqa: ANN401
        """``returns`` is the type of its result."""
        self.id = task_id
        self._services = services
        self._returns = returns

    def __repr__(self) -> str:
        """Return the id of the task."""
        return f"<handle of task {self.id}>"

    async def task(self) -> Task:
        """Return the task's record. Raises NotFound."""
        refuse_inside(_HANDLE)
        task = await self._services.store.get(self.id)
        if task is None:
            raise NotFound("task", self.id)
        return task

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait for the end and return the result. Raises TaskFailed, TaskCancelled, and DeadlineExceeded (a
        TimeoutError) if ``timeout`` passes first; the task then goes on."""  # noqa: D205, D209
        refuse_inside(_HANDLE)
        seconds = None if timeout is None else as_seconds(timeout, what="the timeout")
        task = await self._until_ended(seconds)
        result: R = outcome_of(task, self._returns)
        return result

    async def cancel(self, reason: str = "cancelled", *, actor: str = "user") -> TaskState:
        """Cancel the task and its children; return its state: ``cancelled``, or the state in which a worker has it."""
        refuse_inside(_HANDLE)
        return await cancel(self._services.store, self.id, reason, by=actor)

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events of the task, live and in any process, until it has ended and all events are yielded.

        ``after`` is the number of the last event already seen.
        """
        refuse_inside(_HANDLE)
        changed = asyncio.Event()
        channel, watcher = event_channel(self.id), self._services.watcher
        with watcher.watch(f"channel:{channel}", changed.set), watcher.watch(f"task:{self.id}", changed.set):
            seen = False
            while True:
                changed.clear()
                standing = await call_store(lambda seen=seen: self._standing(seen=seen), self._services.store.outage)  # type: ignore[misc]
                ended, seen = standing.state.is_terminal, True
                while page := await self._page(channel, after):
                    for event in page:
                        after = event.number
                        yield event
                if ended:
                    return
                await self._services.alarms.wait(changed, LOOK_EVERY)

    async def _page(self, channel: str, after: int) -> list[Event]:
        store = self._services.store
        return await call_store(lambda: store.events(channel, after=after), store.outage)

    async def _until_ended(self, seconds: float | None) -> Task:
        clock, changed = self._services.clock, asyncio.Event()
        over_at = None if seconds is None else clock.boot() + seconds
        seen = False
        with self._services.watcher.watch(f"task:{self.id}", changed.set):
            while True:
                changed.clear()
                task = await self._task_if_reachable(seen=seen)
                seen = seen or task is not None
                if task is not None and task.state.is_terminal:
                    return task
                ahead = LOOK_EVERY if over_at is None else min(over_at - clock.boot(), LOOK_EVERY)
                if ahead <= 0:
                    how_far = await self._how_far(task)
                    raise DeadlineExceeded(
                        f"task {self.id} is {how_far} after {seconds:g} s; it goes on, so ask again later"
                    )
                await self._services.alarms.wait(changed, ahead)

    async def _standing(self, *, seen: bool) -> Task:
        """Return the task without its input: it may be large, and shows nothing about whether the task has ended."""
        task = await self._services.store.standing(self.id)
        if task is None:
            raise NotFound("task", self.id, where=PRUNED) if seen else NotFound("task", self.id)
        return task

    async def _how_far(self, task: Task | None) -> str:
        """Describe how far the task is, and whether it waits without any live worker."""
        if task is None:
            return "out of reach"
        if task.state is not TaskState.PENDING:
            return f"still {task.state}"
        live = [worker for worker in await self._services.store.workers() if worker.state is WorkerState.LIVE]
        return f"still pending in queue {task.queue!r}" + ("" if live else " (no worker is alive)")

    async def _task_if_reachable(self, *, seen: bool) -> Task | None:
        """Return the task; None while the store does not answer, which may end by itself."""
        try:
            return await self._standing(seen=seen)
        except StoreError as error:
            if endless_pauses(error, 1) is None:
                raise
            return None


def outcome_of(task: Task, returns: object = Any) -> Any:  # noqa: ANN401
    """Return the result of an ended task, or raise its failure."""
    if task.state is TaskState.COMPLETED:
        return from_json(task.result, returns, name=f"result of task {task.id}")
    if task.state is TaskState.CANCELLED:
        raise TaskCancelled(task.id, task.cancel_requested or "cancelled")
    raise TaskFailed(task.id, Failure.from_json(task.error))
