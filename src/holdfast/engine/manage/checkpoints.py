"""CheckpointManager: snapshots of a task's AgentState, from outside a worker: save, validate and resume, clean up.

An agent at work saves its own, by its ``checkpoint=``. This is for programs that drive a task by hand, and for those
that look after tasks. With a small store (TaskStore), which keeps tasks and no snapshots, the saved task itself is what
a program goes on from.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.engine.attempt.journal import RESUMED
from holdfast.engine.manage import revive
from holdfast.engine.manage.past_state import EMPTY, fold
from holdfast.engine.manage.state import no_state
from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import parse
from holdfast.model.checkpoints import (
    Checkpoints,
    CheckpointStrategy,
    age_of,
    check_age,
    damage_of,
    make_checkpoint,
)
from holdfast.model.clock import Clock
from holdfast.model.commit import Commit, Expect, Refusal
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.operations import Operation, SaveCheckpoint, SetAsideCheckpoint
from holdfast.model.queries import Loaded
from holdfast.model.records import Checkpoint
from holdfast.model.task import MANUAL, Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.store.clock import SystemClock
from holdfast.store.task_store import TaskStore

_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What a task goes on with."""

    task: Task
    state: AgentState
    """Empty if nothing was patched yet."""
    checkpoint: Checkpoint | None
    """The newest good one; None if there is none, and the journal alone gave the state."""
    requeued: bool = False
    """Whether the task had failed and was put back into its queue."""
    note: str = ""
    """What was done, and who goes on with the task, in words."""
    set_aside: tuple[int, ...] = ()
    """Checkpoints that turned out to be damaged."""


_REQUEUED = "it had failed, and is back in its queue: a worker goes on where it stopped"
_NOTES = {
    TaskState.PENDING: "it is pending: the worker or program that takes it begins, or goes on; nothing was changed",
    TaskState.RUNNING: "it is running: its worker, or the program that drives it, goes on; nothing was changed",
    TaskState.WAITING: "it waits, and goes on by itself when that is over; nothing was changed",
    TaskState.REVIEW: "its work is being verified; nothing was changed",
    TaskState.COMPLETED: "it is completed: there is nothing left to do",
    TaskState.FAILED: "it has failed, and was left as it is; hold.resume puts it back into its queue",
}


class CheckpointManager:
    """Saves, validates and rotates the checkpoints of tasks: ``CheckpointManager(hold.store, "every_iteration")``."""

    def __init__(
        self,
        store: TaskStore,
        strategy: CheckpointStrategy | str = CheckpointStrategy.EVERY_STEP,
        *,
        max_age: timedelta | None = timedelta(days=7),
        max_count: int = 20,
        actor: str = "checkpoints",
        clock: Clock | None = None,
    ) -> None:
        """``max_age`` and ``max_count`` are explained at Checkpoints; ``actor`` is who it is in the records.

        ``store`` is that of Holdfast (``hold.store``, ``open_store``), or a TaskStore of your own, whose tasks are then
        measured by ``clock``.
        """
        self._tasks = store
        self._whole = store if isinstance(store, StateStore) else None
        self._policy = Checkpoints(strategy, max_age, max_count)
        self._actor = actor
        self._clock = clock or SystemClock()

    async def maybe_save(self, task: Task | str, trigger: CheckpointStrategy | str) -> Checkpoint | None:
        """Save if ``trigger`` is this manager's strategy: the task, if you drive it by hand, and its AgentState.

        Of a Task that is driven by hand the task itself is saved, as ``store.save`` does; given by its id it is stored
        already. If it has an AgentState, a snapshot is saved and returned, and old ones are rotated.
        """
        if CheckpointStrategy(trigger) is not self._policy.strategy:
            return None
        if isinstance(task, Task):
            if task.name == MANUAL or self._whole is None:
                task = await self._tasks.save(task)
            if self._whole is None or task.version == 0:
                return None
        elif self._whole is None:
            await self._stored(task)
            return None
        return await self._save_state(self._whole, _id_of(task))

    async def _save_state(self, store: StateStore, task_id: str) -> Checkpoint:
        for _ in range(_TRIES):
            found = await self._look(store, task_id)
            task, steps = found.loaded.task, found.loaded.steps
            if task.version == 0:
                raise no_state(task_id)
            position = max((step.position for step in steps), default=0)
            made = make_checkpoint(found.state, number=found.highest + 1, version=task.version, position=position)
            operations = (SaveCheckpoint(made), self._policy.rotation(await store.now()))
            if await self._commit(store, task_id, operations, Expect(version=task.version)):
                return made
        raise Conflict(f"the state of task {task_id} changes faster than it can be saved; try again when it is calmer")

    async def validate_and_resume(
        self,
        task: Task | str,
        *,
        accept_stale: bool = False,
        deadline: float | timedelta | datetime | None = None,
        requeue: bool = True,
    ) -> Resumed:
        """Check what a task would go on with, and return it; put a failed one back into its queue.

        ``requeue=False`` leaves a failed task as it is: then nothing is changed but what was found damaged. A task in
        any other state is never moved; ``note`` says what was done. With a TaskStore of your own there is no queue, and
        nothing is moved.

        Damaged checkpoints are set aside, and the last good one plus the journal is used. Raises CheckpointExpired if
        what is known is too old, unless that is accepted, Conflict if the task was cancelled, Conflict if the deadline
        of a failed one has passed and no new ``deadline`` is given (see Holdfast.resume), and NotFound. Nothing is
        changed then, apart from what was set aside.
        """
        task_id, store = _id_of(task), self._whole
        if store is None:
            return await self._validate(await self._stored(task_id), accept_stale=accept_stale)
        found = await self._look(store, task_id)
        if found.damaged:
            aside = tuple(SetAsideCheckpoint(number=number, why=why) for number, why in found.damaged.items())
            await self._commit(store, task_id, aside, Expect())
        stored = found.loaded.task
        _refuse_cancelled(stored)
        if stored.state is not TaskState.COMPLETED and not accept_stale:
            await self._check_age(store, found.loaded)
        requeued = requeue and stored.state is TaskState.FAILED
        if requeued:
            await revive.resume(store, task_id, by=self._actor, accept_stale=accept_stale, deadline=deadline)
        return Resumed(
            task=await store.get(task_id) or stored,
            state=found.state,
            checkpoint=found.checkpoint,
            set_aside=tuple(found.damaged),
            requeued=requeued,
            note=f"task {task_id}: {_REQUEUED if requeued else _NOTES[stored.state]}",
        )

    async def cleanup(self, task: Task | str) -> int:
        """Delete the checkpoints that are beyond ``max_count`` and older than ``max_age``; return how many.

        A TaskStore of your own keeps the tasks alone, so there is nothing to delete in it.
        """
        store, task_id = self._whole, _id_of(task)
        if store is None:
            return 0
        before = len(await store.checkpoints(task_id))
        await self._commit(store, task_id, (self._policy.rotation(await store.now()),), Expect())
        return before - len(await store.checkpoints(task_id))

    # A store of the user's own

    async def _stored(self, task_id: str) -> Task:
        task = await self._tasks.get(task_id)
        if task is None:
            raise NotFound("task", task_id)
        return task

    async def _validate(self, task: Task, *, accept_stale: bool) -> Resumed:
        _refuse_cancelled(task)
        limit = self._policy.max_age
        if limit is not None and task.state is not TaskState.COMPLETED and not accept_stale:
            if task.updated_at is None:
                raise InvalidValue(
                    f"task {task.id} has no updated_at, so its age cannot be checked; have your store set it in save, "
                    "or make the manager with max_age=None"
                )
            check_age(self._policy, task.id, self._clock.now() - task.updated_at)
        return Resumed(task=task, state=EMPTY, checkpoint=None, note=f"task {task.id}: {_NOTES[task.state]}")

    # A store of Holdfast

    async def _look(self, store: StateStore, task_id: str) -> _Found:
        """Read a task, its newest good checkpoint and the state they make."""
        loaded = await store.load(task_id)
        saved = await store.checkpoints(task_id)
        damaged: dict[int, str] = {}
        good = None
        for checkpoint in reversed(saved):
            why = checkpoint.damaged or damage_of(checkpoint)
            if why is None and checkpoint.version <= loaded.task.version:
                good = checkpoint
                break
            if why is not None and checkpoint.damaged is None:
                damaged[checkpoint.number] = why
        base = EMPTY if good is None else AgentState.from_json(parse(good.body))
        patches = await store.patches(task_id, after=0 if good is None else good.version)
        state = fold((record for record in patches if record.version <= loaded.task.version), base)
        highest = saved[-1].number if saved else 0
        return _Found(loaded=loaded, state=state, checkpoint=good, damaged=damaged, highest=highest)

    async def _check_age(self, store: StateStore, loaded: Loaded) -> None:
        task = loaded.task
        moments = [step.finished_at or step.started_at for step in loaded.steps if step.kind != RESUMED]
        begun = task.updated_at if task.name == MANUAL else task.created_at  # by hand, every save is a sign of life
        last = max((moment for moment in moments if moment is not None), default=begun)
        assert last is not None  # noqa: S101 - a stored task has a time
        history = await store.history(task.id)
        check_age(self._policy, task.id, age_of(history, last, await store.now()))

    async def _commit(self, store: StateStore, task_id: str, operations: tuple[Operation, ...], guard: Expect) -> bool:
        commit = Commit(task_id=task_id, guard=guard, operations=operations, actor=self._actor)
        [verdict] = await store.commit([commit])
        if not verdict.applied and verdict.refusal is not Refusal.CONFLICT:
            raise verdict.error()
        return verdict.applied


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A task as it stands, and what of its checkpoints is good."""

    loaded: Loaded
    state: AgentState
    checkpoint: Checkpoint | None
    damaged: dict[int, str]
    """Why, by number; those that were not set aside yet."""
    highest: int


def _id_of(task: Task | str) -> str:
    return task.id if isinstance(task, Task) else task


def _refuse_cancelled(task: Task) -> None:
    if task.state is TaskState.CANCELLED:
        raise Conflict(f"task {task.id} was cancelled, which is final; submit it anew, or fork it")
