"""emit: events, and the tasks they wake."""

from __future__ import annotations

from datetime import datetime

from holdfast.model.operations import UntilEvent
from holdfast.model.records import Event
from holdfast.model.task import JsonValue
from tests.store.stateful.oracle.changes import Cause, touch, wake
from tests.store.stateful.oracle.tables import Tables


def append_event(
    tables: Tables,
    channel: str,
    payload: JsonValue,
    *,
    key: str | None,
    actor: str,
    now: datetime,
    apart_from: str | None = None,
) -> Event:
    """Append the event, or return the one its key already has, and wake the tasks that wait for it.

    ``apart_from`` is a task whose own Commit emits: it is woken, if at all, after that Commit's Move.
    """
    events = tables.events.get(channel, ())
    first = next((event for event in events if key is not None and event.key == key), None)
    if first is not None:
        return first
    number = tables.event_numbers.get(channel, 0) + 1
    event = Event(channel=channel, number=number, payload=payload, actor=actor, key=key, at=now)
    tables.event_numbers[channel] = number
    tables.events[channel] = (*events, event)
    for task_id, waits in list(tables.waits.items()):
        awaited = any(isinstance(w, UntilEvent) and w.channel == channel and w.after < number for w in waits)
        if awaited and task_id != apart_from:
            wake(tables, task_id, Cause("event", actor, now))
            touch(tables, task_id, now)
    return event
