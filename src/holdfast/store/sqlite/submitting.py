"""Submitting tasks and emitting events: how things get into the store from outside a lease."""

from __future__ import annotations

from holdfast.model.canonical import canonical, digest
from holdfast.model.records import Event
from holdfast.model.task import JsonValue, NewTask, Submitted, search_text
from holdfast.model.transitions import TaskState
from holdfast.store.sqlite.lifecycle import EVENT, wake, write_outcome
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import micros, micros_or_none, stored_rank
from holdfast.store.sqlite.transaction import Transaction


def submit(tx: Transaction, task: NewTask) -> Submitted:
    """Store the task, unless it or its key is already there."""
    user_input = canonical(task.user_input, name="user_input")
    input_digest = digest(user_input)
    existing = tx.first("task_by_id_or_key", task.id, task.name, task.key)
    if existing is not None:
        task_id, name, stored_digest = existing
        same = name == task.name and stored_digest == input_digest
        return Submitted(task_id=task_id, created=False, conflict=not same)

    available_at = tx.now if task.available_at is None else micros(task.available_at)
    ready = task.state is TaskState.REVIEW or (task.state is TaskState.PENDING and available_at <= tx.now)
    tx.run(
        "insert_task",
        task.id,
        task.name,
        task.agent_id,
        task.queue,
        task.priority,
        task.key,
        task.schedule,
        task.parent_id,
        input_digest,
        search_text(
            name=task.name,
            agent_id=task.agent_id,
            key=task.key,
            user_input=task.user_input if isinstance(task.user_input, str) else user_input.decode(),
        ),
        task.state,
        int(ready),
        stored_rank(available_at, task.priority),
        available_at,
        micros_or_none(task.deadline),
        tx.now,
        tx.now if task.state.is_terminal else None,
    )
    tx.run("insert_input", task.id, user_input)
    tx.run("insert_transition", task.id, 1, None, task.state, "submitted", task.actor, 0, tx.now)
    if task.result is not None or task.error is not None:
        write_outcome(tx, task.id, task.result, task.error)
    for meter, limit in task.budget.items():
        tx.run("set_limit", task.id, meter, limit)
    tx.hints.add(f"task:{task.id}")
    if ready:
        tx.hints.add(f"queue:{task.queue}")
    return Submitted(task_id=task.id, created=True)


def emit(
    tx: Transaction, channel: str, payload: JsonValue, *, key: str | None, actor: str, besides: str | None = None
) -> Event:
    """Append an event and wake whoever waits for it; an event with this key stays the only one.

    ``besides`` is a task that a Commit is just working on: that Commit looks after it, when all its changes are in.
    """
    body = canonical(payload, name="payload")
    if key is not None and (existing := tx.first("event_by_key", channel, key)) is not None:
        return RECORDS.event(existing)
    ((number,),) = tx.all("next_event_number", channel)
    tx.run("insert_event", channel, number, key, body, actor, tx.now)
    for (task_id,) in tx.all("waiting_for_channel", channel, number):
        if task_id != besides:
            wake(tx, task_id, reason=EVENT, actor=actor)
    tx.hints.add(f"channel:{channel}")
    return RECORDS.event((channel, number, body, actor, key, tx.now))
