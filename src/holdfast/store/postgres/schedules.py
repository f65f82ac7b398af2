"""Schedules: changed as they were seen, together with the tasks that they submit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.model.canonical import canonical
from holdfast.model.schedule import StoredSchedule
from holdfast.model.task import NewTask, Submitted
from holdfast.store.postgres.batch import encode_tasks
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.records import RECORDS

_to_json = msgspec.json.Encoder().encode

_STORED = (
    *("name", "anchored_at", "tick_at", "due_at", "waits_for_last", "declared", "declared_by", "paused_at"),
    *("paused_by", "pause_reason", "last_tick_at", "last_task_id", "fired_at", "skipped_at"),
)


async def put_schedule(
    db: Database, schedule: StoredSchedule, seen: int, tasks: Sequence[NewTask]
) -> list[Submitted] | None:
    """See ScheduleVerbs."""
    row = _to_json({name: getattr(schedule, name) for name in _STORED}).decode()
    spec = canonical(schedule.spec, name="spec")
    document, payloads = encode_tasks(tasks)
    found = await db.fetch("put_schedule", row, spec, seen, document, payloads, db.at())
    if not found[0][0]:
        return None
    known = {
        n: Submitted(task_id=task_id, created=False, conflict=conflict)
        for _, n, task_id, conflict in found
        if n is not None
    }
    created = [task for n, task in enumerate(tasks) if n not in known]
    db.publish({f"queue:{task.queue}" for task in created} | {f"task:{task.id}" for task in created})
    return [known.get(n) or Submitted(task_id=task.id, created=True) for n, task in enumerate(tasks)]


async def delete_schedule(db: Database, name: str, seen: int) -> bool:
    """See ScheduleVerbs."""
    return bool(await db.fetch("delete_schedule", name, seen))


async def schedule(db: Database, name: str) -> StoredSchedule | None:
    """See ScheduleVerbs."""
    return await db.first(RECORDS.schedule, "schedule", name)


async def schedules(db: Database) -> list[StoredSchedule]:
    """See ScheduleVerbs."""
    return await db.all(RECORDS.schedule, "schedules")


async def due_schedules(db: Database, limit: int) -> list[StoredSchedule]:
    """See ScheduleVerbs."""
    return await db.all(RECORDS.schedule, "due_schedules", db.at(), limit)
