"""Submitting tasks and emitting events: how things get into the store from outside a lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import apsw

from holdfast.model.canonical import canonical, digest
from holdfast.model.records import Event
from holdfast.model.task import JsonValue, NewTask, Submitted, is_untouched, search_text, stays_in_queue
from holdfast.model.transitions import TaskState
from holdfast.store.records import Row, payload_or_none
from holdfast.store.sqlite import limits, lines
from holdfast.store.sqlite.database import MANY, Database
from holdfast.store.sqlite.flow import full_queue
from holdfast.store.sqlite.lifecycle import EVENT, wake, write_outcome
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import micros, micros_or_none, stored_rank
from holdfast.store.sqlite.write_transaction import WriteTransaction

_MICROSECOND = timedelta(microseconds=1)
_MANY_WAITING = 200
"""To wake more takes longer than a few milliseconds, and is not done on the event loop."""


def submit_all(tx: WriteTransaction, tasks: Sequence[NewTask]) -> list[Submitted]:
    """Store the tasks, all at once where nothing stands in the way of any, and otherwise one after the other."""
    if not _all_new(tx, tasks):
        return [submit(tx, task) for task in tasks]
    _store(tx, tasks, [canonical(task.user_input, name="user_input") for task in tasks])
    return [Submitted(task_id=task.id, created=True) for task in tasks]


def submit(tx: WriteTransaction, task: NewTask) -> Submitted:
    """Store the task, unless it or its key is already there."""
    user_input = canonical(task.user_input, name="user_input")
    existing = stored(tx, task)
    if existing is not None:
        task_id, name, stored_digest = existing
        if task.replaces:
            search = _search(task.name, task.agent_id, task.key, task.user_input, user_input)
            # Sent again: whatever has replaced it since stays.
            if task_id == task.id or _replace_waiting(tx, task_id, task, user_input, search):
                return Submitted(task_id=task_id, created=False)
        same = name == task.name and stored_digest == digest(user_input)
        if task.debounce_max is None:
            return Submitted(task_id=task_id, created=False, conflict=not same)
        tx.run("release_key", task_id)
    _store(tx, [task], [user_input])
    return Submitted(task_id=task.id, created=True)


def stored(tx: WriteTransaction, task: NewTask) -> Row | None:
    """Return id, name and input digest of the task that stands in the way: of the same id, else of the same key."""
    found = tx.first("task_by_id", task.id)
    if found is None and task.key is not None:
        found = tx.first("task_by_key", task.name, task.key)
    return found


def _replace_waiting(tx: WriteTransaction, task_id: str, task: NewTask, user_input: bytes, search: str) -> bool:
    """Give a stored task the input, options and time of this one; False, and no change, if it was ever claimed."""
    row = tx.task(task_id)
    if row is None or not is_untouched(row):
        return False
    if task.queue != row.queue:
        raise stays_in_queue(row.id, row.queue, task.queue)
    available_at = tx.now if task.available_at is None else micros(task.available_at)
    if task.debounce_max is not None:
        ((created_at,),) = tx.all("task_age", task_id)
        available_at = min(available_at, created_at + task.debounce_max // _MICROSECOND)
    is_ready = available_at <= tx.now
    limits.ensure_keys(tx, task.limits)
    tx.run(
        "replace_task",
        task_id,
        task.agent_id,
        task.priority,
        digest(user_input),
        search,
        int(is_ready),
        stored_rank(available_at, task.priority),
        available_at,
        micros_or_none(task.deadline),
        payload_or_none(dict(task.labels) or None),
        tx.now,
        payload_or_none(list(task.limits) or None),
        task.limits[0] if task.limits else None,
    )
    tx.last_task = task_id, row.revision + 1
    tx.run("replace_input", task_id, user_input)
    tx.run("clear_limits", task_id)
    tx.run_many("set_limit", [(task_id, meter, limit) for meter, limit in task.budget.items()])
    tx.hints.add(f"task:{task_id}")
    if is_ready:
        tx.hints.add(f"queue:{task.queue}")
    return True


def _all_new(tx: WriteTransaction, tasks: Sequence[NewTask]) -> bool:
    """Say whether no task, stored or among these, has the id or the key of one of them."""
    ids = {task.id for task in tasks}
    keyed = [(task.name, task.key) for task in tasks if task.key is not None]
    if len(ids) < len(tasks) or len(set(keyed)) < len(keyed):
        return False
    return not tx.all_many("task_by_id", [(task_id,) for task_id in ids]) and not tx.all_many("task_by_key", keyed)


def _store(tx: WriteTransaction, tasks: Sequence[NewTask], inputs: Sequence[bytes]) -> None:
    limits.ensure_keys(tx, [key for task in tasks for key in task.limits])
    room = lines.room_for_more(tx, [task.limits[0] for task in tasks if len(task.limits) == 1])
    try:
        tx.run_many("insert_task", [_row(tx, task, body, room) for task, body in zip(tasks, inputs, strict=True)])
    except apsw.ConstraintError as error:
        raise full_queue(tx, error, [task.queue for task in tasks]) or error from None
    if tasks:
        tx.last_task = tasks[-1].id, 1
    tx.run_many("insert_input", [(task.id, body) for task, body in zip(tasks, inputs, strict=True)])
    tx.run_many(
        "insert_transition",
        [(task.id, 1, None, task.state, "submitted", task.actor, 0, tx.now) for task in tasks],
    )
    for task in tasks:
        if task.result is not None or task.error is not None:
            write_outcome(tx, task.id, task.result, task.error)
        if task.budget:
            tx.run_many("set_limit", [(task.id, meter, limit) for meter, limit in task.budget.items()])
        tx.hints.add(f"task:{task.id}")


def _row(tx: WriteTransaction, task: NewTask, user_input: bytes, room: Counter[str]) -> Row:
    available_at = tx.now if task.available_at is None else micros(task.available_at)
    state = task.state
    ready = state is TaskState.REVIEW or (state is TaskState.PENDING and available_at <= tx.now)
    waits_for = task.limits[0] if task.limits and not state.is_terminal else None
    is_held = waits_for is not None  # in the line of its first key; see decision 0032
    if waits_for is not None and ready and len(task.limits) == 1 and room[waits_for] > 0:
        room[waits_for] -= 1
        is_held = False
    if ready:
        tx.hints.add(f"queue:{task.queue}")
    return (
        task.id,
        task.name,
        task.agent_id,
        task.queue,
        task.priority,
        task.key,
        task.schedule,
        task.parent_id,
        digest(user_input),
        _search(task.name, task.agent_id, task.key, task.user_input, user_input),
        state,
        int(ready),
        stored_rank(available_at, task.priority),
        available_at,
        micros_or_none(task.deadline),
        tx.now,
        tx.now if state.is_terminal else None,
        task.round,
        payload_or_none(dict(task.labels) or None),
        payload_or_none(list(task.limits) or None),
        2 if is_held else 0,
        waits_for,
    )


def _search(name: str, agent_id: str, key: str | None, user_input: JsonValue, body: bytes) -> str:
    text = user_input if isinstance(user_input, str) else body.decode()
    return search_text(name=name, agent_id=agent_id, key=key, user_input=text)


def replace_input(tx: WriteTransaction, task_id: str, user_input: JsonValue) -> None:
    """Give a stored task other input, and have it found by that."""
    body = canonical(user_input, name="user_input")
    ((name, agent_id, key),) = tx.all("searched_names", task_id)
    tx.run("replace_input", task_id, body)
    tx.run("replace_search", task_id, digest(body), _search(name, agent_id, key, user_input, body))


async def emit_event(db: Database, channel: str, payload: JsonValue, key: str | None, actor: str) -> Event:
    """See WorkVerbs. How many the event wakes is looked at first."""
    items = MANY if await db.read(lambda reader: has_many_waiting(reader, channel)) else 1
    return await db.write(lambda tx: emit(tx, channel, payload, key=key, actor=actor), items=items)


def has_many_waiting(reader: Reader, channel: str) -> bool:
    """Say whether an event on the channel wakes so many that the event loop must not wait for it."""
    return reader.number("count_waiting", channel, _MANY_WAITING) >= _MANY_WAITING


def emit(
    tx: WriteTransaction, channel: str, payload: JsonValue, *, key: str | None, actor: str, besides: str | None = None
) -> Event:
    """Append an event and wake the tasks that wait for it; an event with this key stays the only one.

    ``besides`` is a task that a Commit is just working on: that Commit looks after it, when all its changes are in.
    """
    body = canonical(payload, name="payload")
    if key is not None and (existing := tx.first("event_by_key", channel, key)) is not None:
        return RECORDS.event(*existing)
    ((number, position),) = tx.all("next_event_number", channel)
    tx.run("insert_event", channel, number, key, body, actor, tx.now, position)
    for (task_id,) in tx.all("waiting_for_channel", channel, number):
        if task_id != besides:
            wake(tx, task_id, reason=EVENT, actor=actor)
    tx.hints.add(f"channel:{channel}")
    return RECORDS.event(channel, number, body, actor, key, tx.now)
