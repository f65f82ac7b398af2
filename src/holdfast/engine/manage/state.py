"""An agent's state, from outside: read it as it is or was, patch it, list its changes.

The state is the fold of the task's patches, and the first patch sets everything. A checkpoint only saves time: the
patches that it holds need not be folded again. A damaged checkpoint is skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.engine.api.definition import Definitions
from holdfast.engine.api.first_state import Opening, opening_of
from holdfast.engine.api.start import start_in
from holdfast.engine.manage.budget import check_cost
from holdfast.engine.manage.past_state import EMPTY, fold, patches_before, read_patch
from holdfast.engine.runtime.services import Services
from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import canonical, parse
from holdfast.model.checkpoints import damage_of
from holdfast.model.checks import check_integer, check_name, check_text
from holdfast.model.commit import Commit, Expect, Refusal
from holdfast.model.errors import Conflict, InvalidValue, NotFound, StateConflict
from holdfast.model.operations import ApplyPatch, Operation
from holdfast.model.patch import StatePatch, apply
from holdfast.model.records import PatchRecord
from holdfast.model.state_diff import Change, diff
from holdfast.model.state_size import check_growth, check_patch_size, fit_patch
from holdfast.model.step import OVER
from holdfast.model.task import MANUAL, Task
from holdfast.model.transitions import OPEN, TaskState
from holdfast.store.base import StateStore

_LOOK_EVERY, _MOST_LOOKS = 0.05, 100
"""Seconds between two polls of a task whose first attempt has just started, and how many polls there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPatch:
    """One applied change of an agent's state."""

    version: int
    """The version of the state after it."""
    patch: StatePatch
    author: str
    reason: str
    step_key: str | None
    """The step that made it; None if it came from outside."""
    at: datetime


async def state_of(
    store: StateStore, definitions: Definitions, task_id: str, at: int | str | None = None
) -> AgentState:
    """Return the state now, at a version, or right after a step.

    If the agent has not started: the state that it will start with.
    """
    if isinstance(at, str):
        return await _state_after_step(store, task_id, at)
    task = await found(store, task_id)
    if task.version == 0 and at is None:
        return (await _opening(store, definitions, task)).state
    if task.version == 0:
        raise no_state(task_id)
    return await _state_at_version(store, task_id, task.version if at is None else _version(task, at))


async def history_of(store: StateStore, definitions: Definitions, task_id: str) -> list[AppliedPatch]:
    """Return every change of the state, first to last; an empty list if the agent has not started."""
    task = await found(store, task_id)
    if task.version == 0:
        await _opening(store, definitions, task)
    return [
        AppliedPatch(
            version=record.version,
            patch=read_patch(record),
            author=record.author,
            reason=record.reason,
            step_key=record.step_key,
            at=record.at,
        )
        for record in await store.patches(task_id)
    ]


async def difference(
    store: StateStore, definitions: Definitions, task_id: str, old: int | str, new: int | str | None
) -> tuple[Change, ...]:
    """Return the changes between two versions of the state."""
    return diff(await state_of(store, definitions, task_id, old), await state_of(store, definitions, task_id, new))


class TaskMoved(Conflict):
    """The state is still at the version that was read, but the task has changed otherwise. Read the task again."""


async def patch_state(
    services: Services,
    task_id: str,
    patch: StatePatch,
    *,
    version: int,
    by: str,
    reason: str,
    revision: int | None = None,
) -> AgentState:
    """Change the state from outside, if it is still at ``version``; return the new state.

    With ``revision``, only if the whole task has not changed since it was read. Raises TaskMoved if the task has
    changed but its state has not.
    """
    check_patch(patch, reason)
    check_integer("version", version, lowest=0)
    check_name("by", by)
    store, dated = services.store, with_times(patch, services.time.now())
    if patch.budget is not None:
        await check_cost(store, services.definitions, task_id, patch.budget)
    operation = ApplyPatch(body=canonical(dated.to_json()), author=by, reason=reason)
    while True:
        task, opening = await _patchable(services, task_id)
        before = await _state_at_version(store, task_id, task.version) if opening is None else opening.state
        if task.version != version:
            raise StateConflict(task_id, state=before, version=task.version, expected=version)
        changed = apply(before, dated)
        check_growth(before, changed)
        # The first state is written here only while no worker has the task. A worker that has it writes it itself.
        states = OPEN if opening is None else frozenset({TaskState.PENDING})
        guard = Expect(states=states, version=version, revision=revision)
        operations = (*first_operations(opening, services.time.now()), operation)
        [verdict] = await store.commit([Commit(task_id=task_id, guard=guard, operations=operations, actor=by)])
        if verdict.applied:
            return changed
        if verdict.refusal is not Refusal.CONFLICT:
            raise verdict.error()
        task = await found(store, task_id)
        if revision is not None and task.version == version and not task.state.is_terminal:
            raise TaskMoved(f"task {task_id} has changed since it was read; nothing was changed")


def first_operations(opening: Opening | None, now: datetime) -> tuple[Operation, ...]:
    """Return the operations that write the first state, if it is not there yet."""
    if opening is None:
        return ()
    patch = fit_patch(with_times(opening.patch, now))
    return (
        *opening.links,
        ApplyPatch(body=canonical(patch.to_json()), author=opening.author, reason=opening.reason),
    )


def check_patch(patch: StatePatch, reason: str) -> None:
    """Reject a value that is not a patch, or is too large."""
    if not isinstance(patch, StatePatch):
        raise InvalidValue(f"{patch!r} is not a StatePatch; write StatePatch(add_questions=(...,)), for example")
    check_text("reason", reason)
    check_patch_size(patch)


def with_origin(patch: StatePatch, now: datetime, step: str | None) -> StatePatch:
    """Return the patch with the fields its author left out: the time of each fact, and the step of the plan."""
    dated = with_times(patch, now)
    facts = tuple(replace(fact, step=fact.step if fact.step is not None else step) for fact in dated.append_facts)
    artifacts = tuple(replace(one, step=one.step if one.step is not None else step) for one in patch.add_artifacts)
    return replace(patch, append_facts=facts, add_artifacts=artifacts)


def with_times(patch: StatePatch, now: datetime) -> StatePatch:
    """Return the patch, with the time added to facts that have none."""
    return replace(patch, append_facts=tuple(replace(fact, at=fact.at or now) for fact in patch.append_facts))


def no_state(task_id: str) -> Conflict:
    """Return the error for a task without a state."""
    return Conflict(
        f"task {task_id} has no AgentState: nothing was patched yet. An agent creates it with its first step, the code "
        "of another task with ctx.patch, and a program that drives a task by hand with hold.patch_state"
    )


async def found(store: StateStore, task_id: str) -> Task:
    """Return a task. Raises NotFound."""
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    return task


async def _opening(store: StateStore, definitions: Definitions, task: Task) -> Opening:
    """Return the first state of a task that has no state yet. Raises Conflict if there is none, or none known here."""
    opening = await opening_of(store, definitions, task)
    if opening is not None:
        return opening
    if not start_in(task.user_input).is_empty:
        raise Conflict(
            f"task {task.id} has no AgentState yet: it was submitted with one, which is written when a worker starts "
            f"the task. Until then, read it from a process in which {task.name!r} is registered: a program, or a "
            "command with HOLDFAST_APPLICATION=MODULE:HOLDFAST"
        )
    raise no_state(task.id)


async def _patchable(services: Services, task_id: str) -> tuple[Task, Opening | None]:
    """Return a task whose state can be patched, and its first state if that is not written yet."""
    store, opening, looks = services.store, None, 0
    while True:
        task = await found(store, task_id)
        begins_empty = _begins_empty(services.definitions, task)
        if task.version == 0 and opening is None and not begins_empty:
            opening = await _opening(store, services.definitions, task)
        if task.state.is_terminal:
            raise Conflict(
                f"task {task_id} is {task.state}: its state is not used any more, and nothing was changed; to continue "
                "from it, fork the task: hold.fork(task, at=..., patch=...)"
            )
        if task.version > 0 or begins_empty:
            return task, None
        if task.state is TaskState.PENDING:
            return task, opening
        looks += 1
        if looks > _MOST_LOOKS or task.state is TaskState.WAITING:
            raise Conflict(
                f"task {task_id} is {task.state} and its agent has not written its first state yet; nothing was "
                "changed; try again later"
            )
        await asyncio.sleep(_LOOK_EVERY)  # its first attempt is about to write the first state


def _begins_empty(definitions: Definitions, task: Task) -> bool:
    """Return whether the first patch creates the state: for a task driven by hand, or one that is not an agent's."""
    definition = definitions.get(task.name)
    return task.name == MANUAL or (definition is not None and not definition.is_agent)


def _version(task: Task, version: int) -> int:
    check_integer("the version of a state", version)
    if not 1 <= version <= task.version:
        raise NotFound("version", str(version), where=f"of the state of task {task.id}; there are 1 to {task.version}")
    return version


async def _state_after_step(store: StateStore, task_id: str, key: str) -> AgentState:
    loaded = await store.load(task_id)  # one snapshot: every step that carried a patch of this version is in it
    task, steps = loaded.task, loaded.steps
    if task.version == 0:
        raise no_state(task_id)
    if not any(step.key == key and step.round == task.round for step in steps):
        steps = tuple(await store.steps(task_id))  # in earlier rounds nothing changes any more
    found = max((step for step in steps if step.key == key), key=lambda step: step.round, default=None)
    if found is None:
        raise NotFound("step", key, where=f"in the journal of task {task_id}; `holdfast steps {task_id}` lists them")
    if found.state not in OVER:
        raise Conflict(f"step {key!r} of task {task_id} is {found.state}: there is no state after it yet")
    records = [record for record in await store.patches(task_id) if record.version <= task.version]
    return await _fold_from_checkpoint(store, task_id, patches_before(steps, records, found))


async def _state_at_version(store: StateStore, task_id: str, version: int) -> AgentState:
    base, known = await _newest_checkpoint(store, task_id, version)
    records = await store.patches(task_id, after=known)
    return fold((record for record in records if record.version <= version), base)


async def _fold_from_checkpoint(store: StateStore, task_id: str, records: Sequence[PatchRecord]) -> AgentState:
    if not records:
        raise no_state(task_id)
    unbroken = 0
    for record in records:
        if record.version != unbroken + 1:
            break
        unbroken = record.version
    base, known = await _newest_checkpoint(store, task_id, unbroken)
    return fold(records[known:], base)


async def _newest_checkpoint(store: StateStore, task_id: str, version: int) -> tuple[AgentState, int]:
    """Return the state of the newest good checkpoint that is not newer than a version, and its version."""
    saved = [one for one in await store.checkpoints(task_id) if one.version <= version and one.damaged is None]
    for checkpoint in sorted(saved, key=lambda one: one.version, reverse=True):
        if damage_of(checkpoint) is None:
            return AgentState.from_json(parse(checkpoint.body)), checkpoint.version
    return EMPTY, 0
