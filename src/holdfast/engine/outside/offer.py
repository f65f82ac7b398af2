"""Offering work to agents outside: the task, and the state it begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.manage.artifacts import link_to
from holdfast.engine.manage.past_state import EMPTY
from holdfast.engine.outside.start import read_start
from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import canonical
from holdfast.model.checks import check_queue, check_text
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import InvalidValue, KeyConflict, NotFound
from holdfast.model.operations import ApplyPatch, LinkArtifact, Operation
from holdfast.model.patch import StatePatch, apply
from holdfast.model.state_size import check_patch_size, fit_patch
from holdfast.model.task import DEFAULT_QUEUE, HANDOVER, JsonValue, NewTask, Task
from holdfast.model.transitions import OPEN
from holdfast.store.base import StateStore

PLAN, DETAILS, STATE = "plan", "details", "state"


async def offer(
    hold: Holdfast,
    goal: str,
    *,
    by: str,
    plan: Sequence[str] = (),
    details: JsonValue = None,
    start: StatePatch | None = None,
    agent_id: str | None = None,
    queue: str | None = None,
    priority: int = 0,
    key: str | None = None,
    delay: float = 0.0,
    deadline: datetime | None = None,
    labels: Mapping[str, str] | None = None,
) -> Task:
    """Store a task for whichever agent claims it; return it. The same key with the same goal is the same task.

    ``start`` is what its state begins with, beside goal and plan.
    """
    if not goal.strip():
        raise InvalidValue("the goal is empty; say what is to be done")
    check_text("the goal", goal)
    check_patch_size(replace(start or StatePatch(), goal=goal, replace_plan=tuple(plan) or None))
    more: dict[str, JsonValue] = {PLAN: list(plan)} if plan else {}
    if details is not None:
        more[DETAILS] = details
    if start is not None and not start.is_empty:
        more[STATE] = start.to_json()
    store, now = hold.store, await hold.store.now()
    new = NewTask(
        name=HANDOVER,
        user_input=[goal, more] if more else [goal],
        agent_id=agent_id or "default",
        queue=check_queue(queue) if queue else DEFAULT_QUEUE,
        priority=priority,
        key=key,
        available_at=now + timedelta(seconds=delay) if delay else None,
        deadline=deadline,
        actor=by,
        labels={} if labels is None else labels,
    )
    [answer] = await store.submit([new])
    if answer.conflict:
        raise KeyConflict(new.name, new.key or new.id, answer.task_id)
    return await begun(store, answer.task_id, by=by)


def first_patch(task: Task) -> StatePatch | None:
    """Return the first patch of such a task's state; None for a task whose own agent makes it."""
    match task.user_input:
        case [str() as goal, *rest] if task.name == HANDOVER:
            more = rest[0] if rest and isinstance(rest[0], dict) else {}
            start = read_start(more.get(STATE))
            dated = tuple(replace(fact, at=fact.at or task.created_at) for fact in start.append_facts)
            plan = _plan(more.get(PLAN)) or start.replace_plan
            return fit_patch(replace(start, goal=goal, replace_plan=plan, append_facts=dated))
    return None


def _plan(given: JsonValue) -> tuple[str, ...] | None:
    """Read a plan. It may be anything: every client can submit a task of this name."""
    if not isinstance(given, list) or not all(isinstance(step, str) for step in given):
        return None
    return tuple(given) or None


def details_of(task: Task) -> JsonValue:
    """Return what was offered beside goal and plan."""
    match task.user_input:
        case [str(), {"details": details}, *_]:
            return details
    return None


def first_state(task: Task) -> AgentState | None:
    """Return the state of a task whose state has not been changed yet."""
    patch = first_patch(task)
    return None if patch is None else apply(EMPTY, patch)


def beginning(task: Task, by: str) -> tuple[Operation, ...]:
    """Return the operations that give a task its first state; none if it has one."""
    patch = first_patch(task) if task.version == 0 else None
    if patch is None:
        return ()
    links = (LinkArtifact(link_to(artifact)) for artifact in patch.add_artifacts)
    return (*links, ApplyPatch(body=canonical(patch.to_json()), author=by, reason="offered"))


async def begun(store: StateStore, task_id: str, *, by: str) -> Task:
    """Give a task its first state, unless it has one; return the task. Another caller may be faster: that is fine."""
    task = await found(store, task_id)
    operations = beginning(task, by)
    if not operations or task.state not in OPEN:
        return task
    guard = Expect(states=OPEN, version=0)
    await store.commit([Commit(task_id=task_id, guard=guard, operations=operations, actor=by)])
    return await found(store, task_id)


async def found(store: StateStore, task_id: str) -> Task:
    """Return a task. Raises NotFound."""
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    return task
