"""SandboxWorker: the sandbox's one worker. It is replaced when it dies, and stopped while there is no work."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.schedule import StoredSchedule
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Swept, WorkerState
from holdfast.testing.killable import KillableWorker, Stage


class RunInTime(Protocol):
    """Awaits something while time moves: stopping a worker may itself wait for the clock."""

    async def __call__(self, work: Coroutine[Any, Any, None]) -> None:
        """Return when the work is done."""
        ...


class SandboxWorker:
    """Keeps one worker running, or none."""

    def __init__(
        self, hold: Holdfast, stage: Stage, *, queues: Sequence[str] | None, concurrency: int, lease: float
    ) -> None:
        """``start`` makes the first worker."""
        self._hold = hold
        self._stage = stage
        self._queues = queues
        self._concurrency = concurrency
        self._lease = lease
        self._worker: KillableWorker | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether there is a living worker."""
        return self._worker is not None and not self._worker.is_dead

    async def is_idle(self) -> bool:
        """Return whether the worker runs nothing and no task is ready. A ready suspect needs some heartbeats first."""
        if self._worker is None or self._worker.running:
            return False
        store, now = self._hold.store, self._hold.services.time.now()
        ready = [*await store.list_by_state(TaskState.PENDING), *await store.list_by_state(TaskState.REVIEW)]
        if any(self._is_ours(task) and (task.available_at or now) <= now for task in ready):
            return False
        # Any other worker needs time to move in small steps, or its lease expires.
        known = {self._worker.id, *self._stage.dead}
        return all(worker.state is WorkerState.DEAD or worker.id in known for worker in await store.workers())

    def _is_ours(self, task: Task) -> bool:
        definitions = self._hold.definitions
        queues = definitions.queues if self._queues is None else self._queues
        return task.queue in queues and definitions.get(task.name) is not None

    @property
    def is_busy(self) -> bool:
        """Whether the worker runs code that takes real time."""
        return self._worker is not None and self._worker.is_busy

    def kill(self) -> bool:
        """Kill the worker; return whether there was one."""
        if self._worker is None or self._worker.is_dead:
            return False
        self._worker.kill()
        return True

    async def start(self) -> None:
        """Start a new worker; clean up after a dead one."""
        if self._worker is not None:
            await self._worker.stop(grace=0.0)
        self._worker = KillableWorker(
            self._stage,
            self._hold.services,
            queues=self._queues,
            concurrency=self._concurrency,
            lease=self._lease,
            label="sandbox",
            grace=0.0,
        )
        await self._worker.__aenter__()

    async def rest(self, run_in_time: RunInTime) -> None:
        """Stop the worker; its tasks are handed back."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await run_in_time(worker.stop(grace=0.0))

    async def look_ahead(self, *, until_then: bool) -> datetime | None:
        """Return when the store has its next work: now, later, or None for never. Only while no worker runs.

        A schedule would never let time stand still. Its ticks count while there is other work ahead, and where a test
        lets time pass ``until_then``.
        """
        store, now = self._hold.store, self._hold.services.time.now()
        swept = await store.sweep()
        if _moved(swept):
            return now
        dues = [] if swept.next_due is None else [swept.next_due]
        killed = [worker for worker in await store.workers() if worker.state is not WorkerState.DEAD]
        dues += [worker.seen_at + timedelta(seconds=worker.lease) for worker in killed]
        if dues or until_then:
            dues += [one.due_at for one in await store.schedules() if one.due_at is not None and not _is_held(one)]
        return min(dues, default=None)


def _is_held(schedule: StoredSchedule) -> bool:
    return schedule.waits_for_last and schedule.last_is_open


def _moved(swept: Swept) -> bool:
    return swept.more or bool(
        swept.recovered or swept.poisoned or swept.woken or swept.due or swept.failed or swept.expired
    )
