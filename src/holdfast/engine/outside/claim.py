"""Taking a task from the queue, for an agent outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count

from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.attempt.endings import cancelled
from holdfast.engine.manage.cancel import cancel_children
from holdfast.engine.outside.lease_token import LeaseToken, checked_seconds, new_secret, worker_id_of
from holdfast.engine.outside.lines import notes_of
from holdfast.engine.outside.offer import beginning, first_state, found
from holdfast.engine.outside.questions import HumanAnswer, answers_of, taking_note
from holdfast.engine.outside.sweep import end_if_cancelled, sweep
from holdfast.model.agent_state import AgentState
from holdfast.model.commit import under_lease
from holdfast.model.effect import Effect, EffectState
from holdfast.model.errors import Conflict, LeaseHeld
from holdfast.model.operations import Move, Operation, Release
from holdfast.model.queries import Loaded, TaskFilter
from holdfast.model.step import Step
from holdfast.model.task import HANDOVER, JsonValue, Task, rank
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker

_UNSETTLED = frozenset({EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN, EffectState.COMPENSATING})
_LOOKED_AT = 50
"""Tasks of a queue that are looked at before a claim. Offered tasks beyond these are found by the claim itself. Tasks
with a definition beyond these, counted for each name, have to wait until the ones before them are gone."""

_WAITS = {
    TaskState.WAITING: "it waits for a person or for something else; claim it when it is pending again",
    TaskState.REVIEW: "its result is being verified",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
    """A task that was claimed."""

    lease: LeaseToken
    seconds: float
    """How long the agent may stay silent."""
    task: Task
    state: AgentState | None
    answers: Sequence[HumanAnswer]
    """People's answers to questions that were asked before."""
    notes: Sequence[dict[str, JsonValue]]
    """What agents before this one left for it, oldest first."""
    steps: Sequence[Step]
    """What was done in this round."""


async def claim(
    hold: Holdfast,
    *,
    by: str,
    names: Sequence[str],
    queues: Sequence[str],
    task_id: str | None = None,
    seconds: float,
) -> ClaimedTask | None:
    """Lease the best task that waits in these queues, or the task that is named; None if there is none.

    ``names`` are the tasks that agents outside may take. Raises Conflict if a task that was named cannot be claimed.
    """
    claimer = _Claimer(hold, by, checked_seconds(seconds))
    await sweep(hold.store)  # what a dead agent held is free again
    if task_id is not None:
        task = await end_if_cancelled(hold.store, task_id)
        await claimer.check_free(task, names)
        return await claimer.this(task)
    taken = await claimer.next_offered(queues) if HANDOVER in names else None
    return taken or await claimer.next_of_others([name for name in names if name != HANDOVER], queues)


class _Claimer:
    """One claim, under an incarnation of its own. It registers only if there is something to claim."""

    def __init__(self, hold: Holdfast, by: str, seconds: float) -> None:
        self._hold = hold
        self._store = hold.store
        self._secret = new_secret()
        self._worker_id = worker_id_of(self._secret)
        self._by = by
        self._seconds = seconds

    @asynccontextmanager
    async def _registered(self) -> AsyncIterator[list[ClaimedTask]]:
        """Register a worker for the block; it stays registered if the claim took a task."""
        details: dict[str, JsonValue] = {"queues": [], "tasks": []}  # it serves no queue: it was made for one task
        await self._store.register(NewWorker(id=self._worker_id, label=self._by, lease=self._seconds, details=details))
        taken: list[ClaimedTask] = []
        try:
            yield taken
        finally:
            if not taken:
                services = self._hold.services  # first: it raises if the Holdfast is closed meanwhile
                # Also if the caller is cancelled: no agent will ever use this lease.
                retiring = asyncio.create_task(self._store.retire(self._worker_id))
                services.keep(retiring)
                await asyncio.shield(retiring)

    async def this(self, task: Task) -> ClaimedTask:
        """Lease this task. Raises Conflict."""
        async with self._registered() as taken:
            claimed = await self._store.acquire(task.id, self._worker_id)
            if claimed.task.state is not TaskState.PENDING:
                await self._commit(claimed.task, Release())
                raise await self._not_free(claimed.task)
            loaded = await self._store.load(task.id)
            if (obstacle := _obstacle(loaded.task, loaded.effects)) is not None:
                await self._commit(loaded.task, Release())
                raise Conflict(obstacle)
            taken.append(await self._take(loaded, Move(to=TaskState.RUNNING, reason=f"claimed by {self._by}")))
        return taken[0]

    async def next_offered(self, queues: Sequence[str]) -> ClaimedTask | None:
        """Lease the next task that was offered to agents outside."""
        if not await self._is_any_due(queues):
            return None
        async with self._registered() as taken:
            for number in count(1):
                # Tasks whose holders kept dying are handed out alone: this incarnation holds nothing else.
                found = await self._claim(number, queues, alone=False) or await self._claim(number, queues, alone=True)
                if not found:
                    break
                loaded = await self._store.load(found[0].id)
                if loaded.task.cancel_requested is None:
                    taken.append(await self._take(loaded))
                    break
                await self._cancel(loaded.task, loaded.task.cancel_requested)
        return taken[0] if taken else None

    async def next_of_others(self, names: Sequence[str], queues: Sequence[str]) -> ClaimedTask | None:
        """Lease the next task that has a definition and is open to agents outside; skip those only its worker can do.

        A skipped task is only read: an agent that polls every few seconds leaves no trace on it.
        """
        for task in [task for queue in queues for task in await self._waiting(names, queue)]:
            effects = await self._store.effects(task_id=task.id, states=_UNSETTLED, limit=1)
            if task.cancel_requested is None and _obstacle(task, effects) is None:
                with suppress(Conflict):  # another claim was faster
                    return await self.this(task)
        return None

    async def _waiting(self, names: Sequence[str], queue: str) -> list[Task]:
        now, due = await self._store.now(), []
        for name in names:
            waiting = TaskFilter(states=frozenset({TaskState.PENDING}), queue=queue, name=name)
            page = await self._store.find(waiting, limit=_LOOKED_AT, newest_first=False)
            due += [task for task in page.items if _is_due(task, now)]
        return sorted(due, key=lambda task: (rank(task.available_at or now, task.priority), task.id))

    async def _is_any_due(self, queues: Sequence[str]) -> bool:
        """Look first: a claim that finds nothing should leave no record, and most find nothing while an agent polls."""
        now = await self._store.now()
        for queue in queues:
            waiting = TaskFilter(states=frozenset({TaskState.PENDING}), queue=queue, name=HANDOVER)
            page = await self._store.find(waiting, limit=_LOOKED_AT, newest_first=False)
            if page.next is not None or any(_is_due(task, now) for task in page.items):
                return True
        return False

    async def _claim(self, number: int, queues: Sequence[str], *, alone: bool) -> list[Task]:
        wanted = Claim(
            worker_id=self._worker_id, number=number, limit=1, queues=tuple(queues), names=(HANDOVER,), alone=alone
        )
        return [claimed.task for claimed in await self._store.claim(wanted)]

    async def check_free(self, task: Task, names: Sequence[str]) -> None:
        """Refuse a task that cannot be claimed now, with a message that says what to do."""
        if task.name not in names:
            raise Conflict(
                f"task {task.id} ({task.name}) is for Holdfast's own workers; agents outside may claim "
                f"{', '.join(names)}. The operator of the server can allow more with --claim NAME"
            )
        if task.state is not TaskState.PENDING:
            raise await self._not_free(task)
        if not _is_due(task, await self._store.now()):
            at = task.available_at.isoformat() if task.available_at is not None else ""
            raise Conflict(f"task {task.id} is not due before {at}; claim it then")

    async def _not_free(self, task: Task) -> Conflict:
        if task.owner is not None:
            words = f"task {task.id} is held by {await self._holder(task)}; nothing was changed"
            return LeaseHeld(task.id, task.owner, words)
        why = _WAITS.get(task.state, "it has ended")
        return Conflict(f"task {task.id} is {task.state}: {why}; nothing was changed")

    async def _holder(self, task: Task) -> str:
        """Return who holds a task, and until when. The owner's id would mean nothing to an agent."""
        worker = next((one for one in await self._store.workers() if one.id == task.owner), None)
        if worker is None:
            return "another worker"
        until = (worker.seen_at + timedelta(seconds=worker.lease)).isoformat(timespec="seconds")
        if worker.label == self._by:
            return (
                f"yourself ({self._by}), under the lease of an earlier claim; go on with that lease, or wait: if it "
                f"stays silent, the task is free after {until}"
            )
        return f"{worker.label}; if it stays silent, the task is free after {until}"

    async def _take(self, loaded: Loaded, *moves: Move) -> ClaimedTask:
        task = loaded.task
        lease = LeaseToken(task.id, task.fence, self._secret)
        now = await self._store.now()
        state = await self._hold.state(task.id) if task.version else first_state(task)
        noted = () if state is None else await taking_note(self._store, loaded, state, now)
        operations = (*beginning(task, self._by), *noted, *moves)
        if operations:
            await self._commit(task, *operations)
            task = await found(self._store, task.id)
            state = await self._hold.state(task.id) if task.version else state
        return ClaimedTask(
            lease=lease,
            seconds=self._seconds,
            task=task,
            state=state,
            answers=answers_of(loaded),
            notes=notes_of(loaded.steps),
            steps=loaded.steps,
        )

    async def _cancel(self, task: Task, why: str) -> None:
        await cancel_children(self._store, task.id, why, by=self._by)
        await self._commit(task, cancelled(why))

    async def _commit(self, task: Task, *operations: Operation) -> None:
        sent = under_lease(task, self._worker_id, task.sequence + 1, operations, by=self._by)
        [verdict] = await self._store.commit([sent])
        verdict.require()


def _is_due(task: Task, now: datetime) -> bool:
    return task.available_at is None or task.available_at <= now


def _obstacle(task: Task, effects: Sequence[Effect]) -> str | None:
    """Return why only the task's own worker can go on with it; None if an agent outside can."""
    doubtful = [effect.step_key for effect in effects if effect.state in _UNSETTLED]
    if doubtful:
        return (
            f"task {task.id} has a call whose outcome is unknown ({doubtful[0]}); its own worker, or a person, has "
            "to settle that first"
        )
    if task.must_undo:
        return f"task {task.id} has steps that must be undone should it fail, and only its own worker can do that"
    return None
