"""Strays: tasks that a worker holds in the store, but does not run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection

from holdfast.engine.attempt.endings import unreadable
from holdfast.engine.runtime import log
from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.errors import Conflict, InvalidValue, RowDamaged
from holdfast.model.operations import Operation
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
        try:
            await write_last(self._put, lease.task_id, lease.owner, lease.fence, (unreadable(error),))
        except RowDamaged as damage:
            self._aside.add(lease.task_id)
            log.set_aside(lease.task_id, str(damage))

    async def _put(self, commit: Commit) -> Verdict:
        [verdict] = await self._store.commit([commit])
        return verdict


async def write_last(
    put: Callable[[Commit], Awaitable[Verdict]],
    task_id: str,
    owner: str,
    fence: int,
    operations: tuple[Operation, ...],
) -> None:
    """Write these under a lease that no attempt uses any more. It is not known how many Commits there were before."""
    number = 1
    for _ in range(2):  # the first answer tells
        commit = Commit(task_id=task_id, guard=Held(owner, fence, number), operations=operations, actor=owner)
        verdict = await put(commit)
        if verdict.refusal is not Refusal.OUT_OF_ORDER and not verdict.duplicate:
            return
        number = verdict.sequence + 1
