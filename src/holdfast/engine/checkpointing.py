"""CheckpointManager: snapshots of an agent's state, from outside a worker: save, validate and resume, clean up.

An agent at work saves its own, by its ``checkpoint=``; this is for whoever drives a task by hand, or looks after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.engine import reviving
from holdfast.engine.journal import RESUMED
from holdfast.engine.past import EMPTY, fold
from holdfast.engine.stating import no_state
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
from holdfast.model.commit import Commit, Expect, Refusal
from holdfast.model.errors import Conflict
from holdfast.model.operations import Operation, SaveCheckpoint, SetAsideCheckpoint
from holdfast.model.queries import Loaded
from holdfast.model.records import Checkpoint
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore

_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What a task goes on with."""

    task: Task
    state: AgentState
    checkpoint: Checkpoint | None
    """The newest good one; None if there is none, and the journal alone gave the state."""
    set_aside: tuple[int, ...] = ()
    """Checkpoints that turned out to be damaged."""


class CheckpointManager:
    """Saves, validates and rotates the checkpoints of tasks: ``CheckpointManager(hold.store, "every_iteration")``."""

    def __init__(
        self,
        store: StateStore,
        strategy: CheckpointStrategy | str = CheckpointStrategy.EVERY_STEP,
        *,
        max_age: timedelta | None = timedelta(days=7),
        max_count: int = 20,
        actor: str = "checkpoints",
    ) -> None:
        """``max_age`` and ``max_count`` are explained at Checkpoints; ``actor`` is who it is in the records."""
        self._store = store
        self._policy = Checkpoints(strategy, max_age, max_count)
        self._actor = actor

    async def maybe_save(self, task_id: str, trigger: CheckpointStrategy | str) -> Checkpoint | None:
        """Save a snapshot of the task's state if ``trigger`` is this manager's strategy, and rotate the old ones."""
        if CheckpointStrategy(trigger) is not self._policy.strategy:
            return None
        for _ in range(_TRIES):
            found = await self._look(task_id)
            task, steps = found.loaded.task, found.loaded.steps
            position = max((step.position for step in steps), default=0)
            made = make_checkpoint(found.state, number=found.highest + 1, version=task.version, position=position)
            operations = (SaveCheckpoint(made), self._policy.rotation(await self._store.now()))
            if await self._commit(task_id, operations, Expect(version=task.version)):
                return made
        raise Conflict(f"the state of task {task_id} changes faster than it can be saved; try again when it is calmer")

    async def validate_and_resume(
        self,
        task_id: str,
        *,
        accept_stale: bool = False,
        deadline: float | timedelta | datetime | None = None,
    ) -> Resumed:
        """Check what a task would go on with; put a failed one back into its queue. Return it.

        Damaged checkpoints are set aside, and the last good one plus the journal is used. Raises CheckpointExpired if
        what is known is too old, unless that is accepted, Conflict if the task was cancelled, Conflict if the deadline
        of a failed one has passed and no new ``deadline`` is given (see Holdfast.resume), and NotFound. Nothing is
        changed then, apart from what was set aside.
        """
        found = await self._look(task_id)
        task = found.loaded.task
        if found.damaged:
            aside = tuple(SetAsideCheckpoint(number=number, why=why) for number, why in found.damaged.items())
            await self._commit(task_id, aside, Expect())
        if task.state is TaskState.CANCELLED:
            raise Conflict(f"task {task_id} was cancelled, which is final; submit it anew, or fork it")
        if task.state is not TaskState.COMPLETED and not accept_stale:
            await self._check_age(found.loaded)
        if task.state is TaskState.FAILED:
            await reviving.resume(self._store, task_id, actor=self._actor, accept_stale=accept_stale, deadline=deadline)
        return Resumed(
            task=await self._store.get(task_id) or task,
            state=found.state,
            checkpoint=found.checkpoint,
            set_aside=tuple(found.damaged),
        )

    async def cleanup(self, task_id: str) -> int:
        """Delete the checkpoints that are beyond ``max_count`` and older than ``max_age``; return how many."""
        before = len(await self._store.checkpoints(task_id))
        await self._commit(task_id, (self._policy.rotation(await self._store.now()),), Expect())
        return before - len(await self._store.checkpoints(task_id))

    async def _look(self, task_id: str) -> _Found:
        """Read a task, its newest good checkpoint and the state they make."""
        loaded = await self._store.load(task_id)
        if loaded.task.version == 0:
            raise no_state(task_id)
        saved = await self._store.checkpoints(task_id)
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
        patches = await self._store.patches(task_id, after=0 if good is None else good.version)
        state = fold((record for record in patches if record.version <= loaded.task.version), base)
        highest = saved[-1].number if saved else 0
        return _Found(loaded=loaded, state=state, checkpoint=good, damaged=damaged, highest=highest)

    async def _check_age(self, loaded: Loaded) -> None:
        moments = [step.finished_at or step.started_at for step in loaded.steps if step.kind != RESUMED]
        last = max((moment for moment in moments if moment is not None), default=loaded.task.created_at)
        assert last is not None  # noqa: S101 - a stored task has a time
        history = await self._store.history(loaded.task.id)
        check_age(self._policy, loaded.task.id, age_of(history, last, await self._store.now()))

    async def _commit(self, task_id: str, operations: tuple[Operation, ...], guard: Expect) -> bool:
        commit = Commit(task_id=task_id, guard=guard, operations=operations, actor=self._actor)
        [verdict] = await self._store.commit([commit])
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
