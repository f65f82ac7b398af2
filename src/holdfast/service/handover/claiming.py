"""Taking a task from the queue, for an agent outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.cancelling import cancel_children
from holdfast.engine.holdfast import Holdfast
from holdfast.model.agent_state import AgentState
from holdfast.model.commit import Commit, Held
from holdfast.model.effect import EffectState
from holdfast.model.errors import Conflict, LeaseHeld
from holdfast.model.operations import Move, Operation, Release
from holdfast.model.queries import Loaded, TaskFilter
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.service.handover.asking import Answer, answers_of, taking_note
from holdfast.service.handover.lease import Lease, checked_seconds, new_secret
from holdfast.service.handover.lines import notes_of
from holdfast.service.handover.offering import beginning, first_state, found
from holdfast.service.handover.sweeping import end_if_cancelled, sweep
from holdfast.store.base import StateStore

_UNSETTLED = frozenset({EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN, EffectState.COMPENSATING})
_MOST_PASSED_OVER = 20
"""Tasks a claim looks at before it says that there is nothing for an agent outside: each is held for a moment."""

_LOOKED_AT = 50
"""Tasks that are looked at to see whether any of them is due; where there are more, the claim itself finds out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A task that was claimed."""

    lease: Lease
    seconds: float
    """How long the agent may stay silent."""
    task: Task
    state: AgentState | None
    answers: Sequence[Answer]
    """What people have said to questions that were asked before."""
    notes: Sequence[dict[str, JsonValue]]
    """What agents before this one left for it, oldest first."""


async def claim(
    hold: Holdfast,
    *,
    by: str,
    names: Sequence[str],
    queues: Sequence[str],
    task_id: str | None = None,
    seconds: float,
) -> Taken | None:
    """Lease the best task that waits in these queues, or this very one; None if there is none.

    ``names`` are the tasks that agents outside may take. Raises Conflict if a task that was named cannot be claimed.
    """
    seconds, store = checked_seconds(seconds), hold.store
    await sweep(store)  # what a dead agent held is free again
    if task_id is not None:
        _check_free(await end_if_cancelled(store, task_id), names, await store.now())
    elif not await _is_anything_there(store, names, queues):
        return None
    secret = new_secret()
    lease = Lease(task_id or "", 1, secret)
    await store.register(NewWorker(id=lease.worker_id, label=by, lease=seconds, details={"queues": [], "tasks": []}))
    try:
        claimer = _Claimer(hold, lease.worker_id, secret, by, seconds)
        taken = await (claimer.from_queues(names, queues) if task_id is None else claimer.this(task_id))
    except BaseException:
        await store.retire(lease.worker_id)
        raise
    if taken is None:
        await store.retire(lease.worker_id)
    return taken


class _Claimer:
    """One claim, under an incarnation of its own."""

    def __init__(self, hold: Holdfast, worker_id: str, secret: str, by: str, seconds: float) -> None:
        self._hold = hold
        self._store = hold.store
        self._worker_id = worker_id
        self._secret = secret
        self._by = by
        self._seconds = seconds

    async def this(self, task_id: str) -> Taken:
        claimed = await self._store.acquire(task_id, self._worker_id)
        if claimed.task.state is not TaskState.PENDING:
            await self._commit(claimed.task, Release())
            raise _not_free(claimed.task)
        loaded = await self._store.load(task_id)
        if (obstacle := _obstacle(loaded)) is not None:
            await self._commit(loaded.task, Release())
            raise Conflict(obstacle)
        return await self._take(loaded, Move(to=TaskState.RUNNING, reason=f"claimed by {self._by}"))

    async def from_queues(self, names: Sequence[str], queues: Sequence[str]) -> Taken | None:
        passed_over: list[Task] = []
        taken = None
        for number in range(1, _MOST_PASSED_OVER + 1):
            # Tasks whose holders kept dying are handed out alone: this incarnation holds nothing else.
            found = await self._claim(number, names, queues, alone=False) or await self._claim(
                number, names, queues, alone=not passed_over
            )
            if not found:
                break
            loaded = await self._store.load(found[0].id)
            if loaded.task.cancel_requested is not None:
                await self._cancel(loaded.task, loaded.task.cancel_requested)
            elif _obstacle(loaded) is not None:
                passed_over.append(loaded.task)
            else:
                taken = await self._take(loaded)
                break
        for task in passed_over:
            await self._commit(task, Move(to=TaskState.PENDING, reason="handed back: not for agents outside now"))
        return taken

    async def _claim(self, number: int, names: Sequence[str], queues: Sequence[str], *, alone: bool) -> list[Task]:
        wanted = Claim(
            worker_id=self._worker_id, number=number, limit=1, queues=tuple(queues), names=tuple(names), alone=alone
        )
        return [claimed.task for claimed in await self._store.claim(wanted)]

    async def _take(self, loaded: Loaded, *moves: Move) -> Taken:
        task = loaded.task
        lease = Lease(task.id, task.fence, self._secret)
        now = await self._store.now()
        state = await self._hold.state(task.id) if task.version else first_state(task)
        noted = () if state is None else taking_note(loaded, state, now)
        operations = (*beginning(task, self._by), *noted, *moves)
        if operations:
            await self._commit(task, *operations)
            task = await found(self._store, task.id)
            state = await self._hold.state(task.id) if task.version else state
        return Taken(
            lease=lease,
            seconds=self._seconds,
            task=task,
            state=state,
            answers=answers_of(loaded),
            notes=notes_of(loaded.steps),
        )

    async def _cancel(self, task: Task, why: str) -> None:
        await cancel_children(self._store, task.id, why, actor=self._by)
        await self._commit(task, Move(to=TaskState.CANCELLED, reason=why))

    async def _commit(self, task: Task, *operations: Operation) -> None:
        guard = Held(self._worker_id, task.fence, task.sequence + 1)
        [verdict] = await self._store.commit(
            [Commit(task_id=task.id, guard=guard, operations=operations, actor=self._by)]
        )
        if not verdict.applied:
            raise verdict.error()


async def _is_anything_there(store: StateStore, names: Sequence[str], queues: Sequence[str]) -> bool:
    """Look first: a claim that finds nothing should leave nothing, and most do while somebody waits for work."""
    now = await store.now()
    for queue in queues:
        for name in names:
            waiting = TaskFilter(states=frozenset({TaskState.PENDING}), queue=queue, name=name)
            page = await store.find(waiting, limit=_LOOKED_AT, newest_first=False)
            if page.next is not None or any(
                task.available_at is None or task.available_at <= now for task in page.items
            ):
                return True
    return False


def _check_free(task: Task, names: Sequence[str], now: datetime) -> None:
    """Refuse a task that cannot be claimed now, in words that say what to do."""
    if task.name not in names:
        raise Conflict(
            f"task {task.id} ({task.name}) is for Holdfast's own workers; agents outside may claim {', '.join(names)}. "
            "Whoever runs the server can allow more with --claim NAME"
        )
    if task.state is not TaskState.PENDING:
        raise _not_free(task)
    if task.available_at is not None and task.available_at > now:
        raise Conflict(f"task {task.id} is not due before {task.available_at.isoformat()}; claim it then")


def _not_free(task: Task) -> Conflict:
    if task.owner is not None:
        return LeaseHeld(task.id, task.owner)
    waits = {
        TaskState.WAITING: "it waits for a person or for something else; claim it when it is pending again",
        TaskState.REVIEW: "its result is being verified",
    }
    return Conflict(f"task {task.id} is {task.state}: {waits.get(task.state, 'it has ended')}; nothing was changed")


def _obstacle(loaded: Loaded) -> str | None:
    """Say why only the task's own worker can go on with it; None if nothing is in the way."""
    task = loaded.task
    doubtful = [effect.step_key for effect in loaded.effects if effect.state in _UNSETTLED]
    if doubtful:
        return (
            f"task {task.id} has a call nobody knows the outcome of ({doubtful[0]}); its own worker, or a person, has "
            "to clear that up first"
        )
    if task.must_undo:
        return f"task {task.id} has steps that must be undone should it fail, and only its own worker can do that"
    return None
