"""submit."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from holdfast.model.canonical import canonical, digest
from holdfast.model.errors import QueueFull
from holdfast.model.records import Account
from holdfast.model.task import JsonValue, NewTask, Submitted, Task, search_text, stays_in_queue
from holdfast.model.transitions import TaskState
from tests.store.stateful.oracle.changes import Cause, log_transition
from tests.store.stateful.oracle.limiting import check_keys_of
from tests.store.stateful.oracle.tables import NOT_READY, READY, Tables, TaskRow


def submit_one(tables: Tables, new: NewTask, now: datetime) -> Submitted:
    """Store the task unless its id, or its name and key, are taken."""
    input_bytes = canonical(new.user_input)
    input_digest = digest(input_bytes)
    holder = holder_of(tables, new)
    if holder is not None and new.replaces and (holder.task.id == new.id or replace_waiting(tables, holder, new, now)):
        return Submitted(task_id=holder.task.id, created=False)
    if holder is not None and new.debounce_max is not None:
        tables.change_row(holder.task.id, task=replace(holder.task, key=None))
    elif holder is not None:
        same = holder.task.name == new.name and holder.input_digest == input_digest
        return Submitted(task_id=holder.task.id, created=False, conflict=not same)
    settings = tables.queues.get(new.queue)
    limit = None if settings is None else settings.max_pending
    is_refusable = new.state is TaskState.PENDING and new.schedule is None
    if limit is not None and is_refusable and pending_in(tables, new.queue) >= limit:
        raise QueueFull(new.queue, limit)
    check_keys_of(tables, new.limits)
    available_at = (new.available_at or now).astimezone(UTC)
    task = Task(
        id=new.id,
        name=new.name,
        agent_id=new.agent_id,
        user_input=new.user_input,
        state=new.state,
        result=new.result,
        error=new.error,
        created_at=now,
        updated_at=now,
        finished_at=now if new.state.is_terminal else None,
        queue=new.queue,
        priority=new.priority,
        key=new.key,
        available_at=available_at,
        deadline=new.deadline and new.deadline.astimezone(UTC),
        schedule=new.schedule,
        parent_id=new.parent_id,
        round=new.round,
        revision=1,
        labels=new.labels,
        limits=new.limits,
        waits_for=new.limits[0] if new.limits and not new.state.is_terminal else None,
    )
    claimable = new.state in {TaskState.PENDING, TaskState.REVIEW} and available_at <= now
    tables.tasks[new.id] = TaskRow(
        task=task,
        input_digest=input_digest,
        search=_search(task),
        ready=READY if claimable else NOT_READY,
        events_before=dict(tables.event_numbers),
    )
    log_transition(tables, new.id, None, Cause("submitted", new.actor, now))
    for meter, limit in new.budget.items():
        account = Account(account=new.id, meter=meter, limit=limit, spent=0, reserved=0)
        tables.accounts[new.id, meter] = account
    return Submitted(task_id=new.id, created=True)


def pending_in(tables: Tables, queue: str) -> int:
    tasks = (row.task for row in tables.tasks.values())
    return sum(task.queue == queue and task.state is TaskState.PENDING for task in tasks)


def replace_waiting(tables: Tables, holder: TaskRow, new: NewTask, now: datetime) -> bool:
    """Give the task that has the key what is new, unless anything was ever done to it."""
    task = holder.task
    is_touched = task.fence or task.version or task.cancel_requested or len(tables.transitions[task.id]) > 1
    if task.state is not TaskState.PENDING or is_touched:
        return False
    if task.queue != new.queue:
        raise stays_in_queue(task.id, task.queue, new.queue)
    available_at = (new.available_at or now).astimezone(UTC)
    if new.debounce_max is not None:
        assert task.created_at is not None
        available_at = min(available_at, task.created_at + new.debounce_max)
    check_keys_of(tables, new.limits)
    names = ("agent_id", "user_input", "priority", "labels", "limits")
    changed = replace(
        task,
        **{name: getattr(new, name) for name in names},
        available_at=available_at,
        deadline=new.deadline and new.deadline.astimezone(UTC),
        waits_for=new.limits[0] if new.limits else None,
        updated_at=now,
        revision=task.revision + 1,
    )
    ready = READY if available_at <= now else NOT_READY
    input_digest = digest(canonical(new.user_input))
    tables.change_row(task.id, task=changed, input_digest=input_digest, search=_search(changed), ready=ready, turn=None)
    for account, meter in tables.accounts:
        if account == task.id:
            tables.accounts[account, meter] = replace(tables.accounts[account, meter], limit=None)
    for meter, limit in new.budget.items():
        before = tables.accounts.get(
            (task.id, meter), Account(account=task.id, meter=meter, spent=0, reserved=0, limit=0)
        )
        tables.accounts[task.id, meter] = replace(before, limit=limit)
    return True


def holder_of(tables: Tables, new: NewTask) -> TaskRow | None:
    if new.id in tables.tasks:
        return tables.tasks[new.id]
    if new.key is None:
        return None
    return next((row for row in tables.tasks.values() if (row.task.name, row.task.key) == (new.name, new.key)), None)


def give_input(tables: Tables, task_id: str, user_input: JsonValue) -> None:
    """Replace the task's input and what follows from it."""
    task = tables.change_task(task_id, user_input=user_input)
    tables.change_row(task_id, input_digest=digest(canonical(user_input)), search=_search(task))


def _search(task: Task) -> str:
    searched = task.user_input if isinstance(task.user_input, str) else canonical(task.user_input).decode()
    return search_text(name=task.name, agent_id=task.agent_id, key=task.key, user_input=searched)
