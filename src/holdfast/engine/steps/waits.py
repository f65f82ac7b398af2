"""Waits that survive a restart of the process: timers and events. Each is a line of the journal once it is over.

A branch waits here. Once the whole task is suspended, the sweep of the store wakes it when the time has come.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.engine.attempt.journal import stable_bytes
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.canonical import canonical, parse
from holdfast.model.codec import decode, encode
from holdfast.model.deadline import Deadline
from holdfast.model.errors import DeadlineExceeded
from holdfast.model.failure import Failure
from holdfast.model.operations import Emit, UntilEvent, UntilTime, Wait, WriteStep
from holdfast.model.records import Event
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue


def event_channel(task_id: str) -> str:
    """Return the channel of a task's own events, such as its progress."""
    return f"task:{task_id}"


async def pause_until(attempt: StepOwner, step: Step, at: datetime) -> None:
    """Wait until a time that ``step`` records as its ``retry_at``."""

    async def look() -> bool | None:
        return True if attempt.services.time.now() >= at else None

    await attempt.residence.waiting_branches().park((UntilTime(key=step.key, at=at),), step, (), look)


async def sleep(attempt: StepOwner, key: str, seconds: float) -> None:
    """Wait for a time, also through restarts."""
    recorded = attempt.find(key, "sleep")
    if recorded is not None and recorded.state is StepState.COMPLETED:
        await attempt.take_turn(recorded)
        return
    if recorded is None or recorded.retry_at is None:
        until = attempt.services.time.now() + timedelta(seconds=seconds)
        waiting = journal_line(attempt, key, "sleep", recorded, state=StepState.PENDING, retry_at=until)
    else:
        until, waiting = recorded.retry_at, recorded
    await pause_until(attempt, waiting, until)
    done = journal_line(attempt, key, "sleep", waiting, state=StepState.COMPLETED)
    await attempt.outbox.commit(WriteStep(done))


async def wait_event(attempt: StepOwner, key: str, channel: str, *, timeout: float | None, earlier: bool) -> JsonValue:
    """Return the payload of the channel's next event. Raises DeadlineExceeded if none comes in time."""
    recorded = attempt.find(key, "event")
    cursors = attempt.events.read()
    if recorded is not None and recorded.state is StepState.COMPLETED:
        await attempt.take_turn(recorded)
        return decode(recorded.output or b"", name=f"event {key!r}")["payload"]
    if recorded is not None and recorded.state is StepState.FAILED:
        await attempt.discovery.let_branches_pass()
        raise DeadlineExceeded(Failure.from_json(parse(recorded.error or b"null")).message, step=key)
    store, time = attempt.services.store, attempt.services.time
    await _find_beginning(attempt, channel, earlier=earlier)
    until = recorded.retry_at if recorded is not None else None
    if until is None and timeout is not None:
        until = time.now() + timedelta(seconds=timeout)
    waiting = journal_line(attempt, key, "event", recorded, state=StepState.PENDING, retry_at=until)

    reserved = attempt.events.reserved(channel)
    mine: list[int] = []

    async def look() -> Event | bool | None:
        behind, most = cursors[channel], len(reserved) + 1
        for event in await call_store(lambda: store.events(channel, after=behind, limit=most)):
            if event.number > cursors[channel] and event.number not in reserved:  # a branch may have taken it meanwhile
                reserved.add(event.number)
                mine.append(event.number)
                return event
        return False if until is not None and time.now() >= until else None

    waits: list[Wait] = [UntilEvent(key=key, channel=channel, after=cursors[channel])]
    if until is not None:
        waits.append(UntilTime(key=stable_bytes("timeout", key).hex(), at=until))
    try:
        event = await attempt.residence.waiting_branches().park(tuple(waits), waiting, (f"channel:{channel}",), look)
        if isinstance(event, Event):
            output = encode({"channel": channel, "number": event.number, "payload": event.payload})
            done = journal_line(attempt, key, "event", waiting, state=StepState.COMPLETED, output=output)
            await attempt.outbox.commit(WriteStep(done))
            return event.payload
    finally:
        # Move the cursor only once the event is recorded: if this branch is stopped, the next one gets the event.
        if (got := attempt.journal.get(key)) is not None and got.state is StepState.COMPLETED:
            cursors[channel] = max([cursors[channel], *mine])
        reserved.difference_update(mine)
    deadline = Deadline(until or time.now(), f"the wait for an event on {channel!r}")
    error = DeadlineExceeded(deadline.message(time.now()), step=key)
    body = canonical(Failure.of(error).to_json())
    await attempt.outbox.commit(
        WriteStep(journal_line(attempt, key, "event", waiting, state=StepState.FAILED, error=body))
    )
    raise error


async def _find_beginning(attempt: StepOwner, channel: str, *, earlier: bool) -> None:
    """Set the place from which the task reads a channel, unless it is known."""
    cursors = attempt.events.read()
    if channel not in cursors:
        store, task_id = attempt.services.store, attempt.task.id
        begin = 0 if earlier else await call_store(lambda: store.position(channel, before_task=task_id))
        cursors.setdefault(channel, begin)


async def progress(attempt: StepOwner, key: str, payload: JsonValue) -> None:
    """Report progress to the task's watchers, once."""
    recorded = attempt.find(key, "progress")
    if recorded is not None:
        await attempt.take_turn(recorded)
        return
    await attempt.check()
    done = journal_line(attempt, key, "progress", None, state=StepState.COMPLETED)
    await attempt.outbox.commit(WriteStep(done), Emit(channel=event_channel(attempt.task.id), payload=payload))


def now(attempt: StepOwner, key: str) -> datetime:
    """Return the time. A replay gets the same time, if anything durable was written after this call."""
    recorded = attempt.find(key, "now")
    if recorded is not None:
        return datetime.fromisoformat(decode(recorded.output or b""))
    moment = attempt.services.time.now()
    line = journal_line(attempt, key, "now", None, state=StepState.COMPLETED, output=encode(moment.isoformat()))
    attempt.outbox.buffer(WriteStep(line))
    return moment


def draw(attempt: StepOwner, what: str, key: str) -> bytes:
    """Return random bytes that are the same on every replay.

    They are made from a task's id, and need no line. Only a fork records which task's id was used: later it cannot be
    determined whether its code was still in the shared past.
    """
    journal = attempt.journal
    if not journal.is_of_fork:
        return stable_bytes(what, *journal.seed, key)
    recorded = attempt.find(key, "draw")
    if recorded is not None:
        return stable_bytes(what, *decode(recorded.output or b""), key)
    seed = journal.seed
    line = journal_line(attempt, key, "draw", None, state=StepState.COMPLETED, output=encode(list(seed)))
    attempt.outbox.buffer(WriteStep(line))
    return stable_bytes(what, *seed, key)
