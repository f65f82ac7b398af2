"""Writing under a lease. Whatever is written renews it; once the lease is over, nothing is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeAlias

from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.attempt.endings import too_late
from holdfast.engine.manage.state import with_times
from holdfast.engine.outside.facts import without_known_facts
from holdfast.engine.outside.lease_token import LeaseToken
from holdfast.engine.outside.offer import found
from holdfast.model.canonical import canonical
from holdfast.model.commit import Commit, under_lease
from holdfast.model.errors import Conflict, DeadlineExceeded, LeaseLost, WorkerDead
from holdfast.model.failure import Failure
from holdfast.model.operations import ApplyPatch, Operation
from holdfast.model.patch import StatePatch, apply
from holdfast.model.state_size import check_growth
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

Write: TypeAlias = Callable[[Task, datetime], Awaitable[Sequence[Operation]]]
"""Returns operations for the task as it stands. It may be called again, and then sees what it wrote before.

What it reads is at least as new as the task. If another call wrote in between, the number of the Commit is taken.
"""

_MOST_TRIES = 20
"""Tries of one call while other calls under the same lease write; agents normally make them one by one."""


class LeaseWriter:
    """Writes to one task under one lease."""

    def __init__(self, hold: Holdfast, lease: LeaseToken, by: str) -> None:
        """``by`` is who calls; the lease says what it holds."""
        self.hold = hold
        self.store = hold.store
        self.lease = lease
        self.by = by

    async def task(self) -> Task:
        """Return the task as it stands, also if another agent holds it."""
        return await found(self.store, self.lease.task_id)

    async def renew(self) -> Task:
        """Renew the lease; return the task. Raises LeaseLost."""
        lease = self.lease
        try:
            await self.store.heartbeat(lease.worker_id)
        except WorkerDead:
            raise await self._lost() from None
        task = await self.task()
        if task.owner != lease.worker_id or task.fence != lease.fence:
            raise await self._lost()
        if task.deadline is not None and task.deadline <= await self.store.now():
            raise await self._too_late(task)
        return task

    async def commit(self, write: Write) -> None:
        """Commit the operations that ``write`` returns; it has to return none if the task has them already.

        A Commit is numbered, and the store answers a number that is taken as a repetition. Either another call under
        the same lease was faster, or the store sent this one twice and lost the first answer. The two look alike, so
        this tries again: the next try writes after the other call, or finds everything written.
        """
        for _ in range(_MOST_TRIES):
            task = await self.renew()
            operations = tuple(await write(task, await self.store.now()))
            if not operations:
                return
            [verdict] = await self.store.commit([self._numbered(task, operations)])
            verdict.require()
            if not verdict.duplicate:
                return
        raise Conflict(f"too many calls at once under one lease on task {self.lease.task_id}; make them one by one")

    def _numbered(self, task: Task, operations: tuple[Operation, ...]) -> Commit:
        """Return the next Commit under the lease; ``renew`` has found that the task is still held under its fence."""
        return under_lease(task, self.lease.worker_id, task.sequence + 1, operations, by=self.by)

    async def patching(self, patch: StatePatch, at: datetime, *, step_key: str | None = None) -> tuple[ApplyPatch, ...]:
        """Return the operations that apply a patch, without what is known. Raises where it contradicts the state."""
        if patch.is_empty:
            return ()
        state = await self.hold.state(self.lease.task_id)
        check_growth(state, apply(state, patch))
        new = without_known_facts(patch, state)
        if new.is_empty:
            return ()
        return (ApplyPatch(body=canonical(with_times(new, at).to_json()), author=self.by, step_key=step_key),)

    async def has_ended(self, to: TaskState, reason: str) -> bool:
        """Return whether an earlier call, whose answer was lost, ended this lease in the same way."""
        moves = await self.store.history(self.lease.task_id)
        own = [move for move in moves if move.fence == self.lease.fence and move.actor == self.by]
        return any((move.from_state, move.to_state, move.reason) == (TaskState.RUNNING, to, reason) for move in own)

    async def _lost(self) -> LeaseLost:
        task = await self.task()
        now = f"task is {task.state}" + (", and another worker has it" if task.owner is not None else "")
        return LeaseLost(task.id, self.lease.fence, now)

    async def _too_late(self, task: Task) -> DeadlineExceeded:
        """Fail a task whose deadline passed while it was held: no sweep touches a held task."""
        error = DeadlineExceeded(f"the deadline of task {task.id} has passed; it has failed, stop working on it")
        # It does not matter whether this succeeds: if not, another call has ended the task, or the lease is lost.
        await self.store.commit([self._numbered(task, (too_late(Failure.of(error)),))])
        return error
