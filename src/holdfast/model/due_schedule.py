"""A due schedule: what it does, decided apart from doing it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.model.ids import new_id
from holdfast.model.remarks import redact_remark
from holdfast.model.schedule import CatchUp, Overlap, ScheduleSpec, StoredSchedule, key_of, read_spec
from holdfast.model.task import NewTask
from holdfast.model.ticks import due_time, latest_ticks, next_tick

CATCH_UP_MOST = 100
"""Tasks that one schedule submits for the ticks that it missed."""

MISSED_AFTER = timedelta(minutes=1)
"""A tick that no worker has seen for so long was missed. Shorter than that, workers were only busy."""

ACTOR = "schedule"


@dataclass(frozen=True, slots=True)
class Firing:
    """What becomes of a due schedule: its row, and the tasks that are submitted with it."""

    schedule: StoredSchedule
    tasks: tuple[NewTask, ...]


def fire(schedule: StoredSchedule, now: datetime) -> Firing | None:
    """Decide what a schedule does now. None: nothing, it is not due (any more), or waits for its last task."""
    spec = read_spec(schedule.spec)
    if schedule.due_at is None or now < schedule.due_at or (spec.overlap is Overlap.QUEUE and schedule.last_is_open):
        return None
    most = CATCH_UP_MOST if spec.catch_up is CatchUp.ALL else 1
    newest = _newest_due(schedule, spec, now)
    changed = planned(replace(schedule, tick_at=next_tick(spec, schedule.anchored_at, newest)), spec)
    if _was_missed(schedule, spec, newest, now):
        return Firing(changed, ())
    if spec.overlap is Overlap.SKIP and schedule.last_is_open:
        return Firing(replace(changed, skipped_at=newest), ())
    ticks = latest_ticks(spec, schedule.anchored_at, schedule.tick_at, newest, most=most)
    tasks = tuple(task_of(schedule.name, spec, now, key=key_of(schedule.name, tick)) for tick in ticks)
    return Firing(replace(changed, last_tick_at=newest, last_task_id=tasks[-1].id, fired_at=now), tasks)


def _newest_due(schedule: StoredSchedule, spec: ScheduleSpec, now: datetime) -> datetime:
    """Return the newest tick that is due. Older ones count as due with it, whatever their jitter."""
    first = schedule.tick_at
    for tick in reversed(latest_ticks(spec, schedule.anchored_at, first, now, most=CATCH_UP_MOST)):
        if due_time(spec, schedule.name, tick) <= now:
            return tick
    return first


def _was_missed(schedule: StoredSchedule, spec: ScheduleSpec, newest: datetime, now: datetime) -> bool:
    if spec.catch_up is not CatchUp.NONE:
        return False
    due = due_time(spec, schedule.name, newest)
    if spec.overlap is Overlap.QUEUE and schedule.last_ended_at is not None:
        due = max(due, schedule.last_ended_at)
    return now - due > MISSED_AFTER


def task_of(schedule: str, spec: ScheduleSpec, now: datetime, *, key: str | None, by: str = ACTOR) -> NewTask:
    """Return a task of the schedule."""
    return NewTask(
        id=new_id(),
        name=spec.task,
        user_input=spec.user_input,
        agent_id=spec.agent_id,
        queue=spec.queue,
        priority=spec.priority,
        key=key,
        deadline=None if spec.deadline is None else now + spec.deadline,
        schedule=schedule,
        budget=spec.budget,
        labels=spec.labels,
        limits=spec.limits,
        actor=by,
    )


def planned(schedule: StoredSchedule, spec: ScheduleSpec) -> StoredSchedule:
    """Return the schedule with the time at which its next tick is due: none while it fires nothing."""
    fires = schedule.paused_at is None and (schedule.declared_by is not None or not schedule.declared)
    due = due_time(spec, schedule.name, schedule.tick_at) if fires else None
    return replace(schedule, due_at=due, waits_for_last=spec.overlap is Overlap.QUEUE)


def replanned(
    stored: StoredSchedule | None, name: str, spec: ScheduleSpec, now: datetime, *, declared_by: str | None = None
) -> StoredSchedule:
    """Return a schedule with this spec, new or in place of the stored one.

    The next tick stays if its times are the same; other times begin now. It stays paused if it was.
    """
    before = None if stored is None else _spec_or_none(stored)
    if stored is None or before is None or not spec.has_same_times(before):
        tick = next_tick(spec, now, now)
        anchored = stored or StoredSchedule(name=name, spec=None, anchored_at=now, tick_at=tick, due_at=None)
        stored = replace(anchored, anchored_at=now, tick_at=tick)
    changed = replace(stored, spec=spec.to_json(), declared=declared_by is not None, declared_by=declared_by)
    return planned(changed, spec)


def _spec_or_none(stored: StoredSchedule) -> ScheduleSpec | None:
    try:
        return read_spec(stored.spec)
    except ValueError:
        return None  # made by another version: replaced as a whole


def paused(stored: StoredSchedule, now: datetime, *, by: str, reason: str | None) -> StoredSchedule:
    """Return the schedule paused since now."""
    return replace(stored, paused_at=now, paused_by=by, pause_reason=redact_remark(reason), due_at=None)


def unpaused(stored: StoredSchedule, now: datetime) -> StoredSchedule:
    """Return the schedule going on with the next tick after now: a pause is not caught up."""
    spec = read_spec(stored.spec)
    following = next_tick(spec, stored.anchored_at, now)
    free = replace(stored, paused_at=None, paused_by=None, pause_reason=None, tick_at=following)
    return planned(free, spec)


def abandoned(stored: StoredSchedule) -> StoredSchedule:
    """Return the schedule as one that no worker declares."""
    return replace(stored, declared_by=None, due_at=None)
