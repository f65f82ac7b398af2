"""Strays: tasks that a worker holds in the store, but does not run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from holdfast.engine.attempt.endings import unreadable
from holdfast.engine.runtime import log
from holdfast.model.commit import Commit, Held, Refusal
from holdfast.model.errors import Conflict, InvalidValue, RowDamaged
from holdfast.model.worker import Claimed, Lease
from holdfast.store.base import StateStore


class Strays:
    """Finds the strays of one worker, and adopts them."""

    def __init__(self, store: StateStore) -> None:
        """Start without any."""
        self._store = store
        self._seen: set[str] = set()
        self._aside: set[str] = set()
        """Tasks that can neither be read nor be failed."""

    async def adopt(self, worker_id: str, known: Collection[str | None]) -> AsyncIterator[Claimed]:
        """Yield the tasks that the worker holds and that are not ``known``, ready to be started."""
        leases = {lease.task_id: lease for lease in await self._store.owned(worker_id)}
        unknown = leases.keys() - known
        for task_id in unknown & self._seen:  # seen in two checks: the task is not just about to start or end
            try:
                claimed = await self._store.acquire(task_id, worker_id)
            except RowDamaged as error:
                await self._set_aside(leases[task_id], error)
            except (Conflict, InvalidValue):
                pass
            else:
                yield claimed
        self._seen = unknown

    async def _set_aside(self, lease: Lease, error: RowDamaged) -> None:
        """Fail a task that cannot be read. If that cannot be written either, the task stays here, and is logged once.

        Nothing is undone, because nothing is known of what it did.
        """
        if lease.task_id in self._aside:
            return
        log.unreadable(lease.task_id, error)
        number = 1
        try:
            for _ in range(2):  # the first answer tells how many Commits there were under this lease
                guard = Held(lease.owner, lease.fence, number)
                commit = Commit(task_id=lease.task_id, guard=guard, operations=(unreadable(error),), actor=lease.owner)
                [verdict] = await self._store.commit([commit])
                if verdict.refusal is not Refusal.OUT_OF_ORDER and not verdict.duplicate:
                    return
                number = verdict.sequence + 1
        except RowDamaged as damage:
            self._aside.add(lease.task_id)
            log.set_aside(lease.task_id, str(damage))
