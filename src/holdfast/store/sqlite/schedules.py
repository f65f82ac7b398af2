"""Schedules: changed as they were seen, together with the tasks that they submit."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.canonical import canonical
from holdfast.model.schedule import StoredSchedule
from holdfast.model.task import NewTask, Submitted
from holdfast.store.records import Row
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import micros, micros_or_none
from holdfast.store.sqlite.submission import submit_all
from holdfast.store.sqlite.write_transaction import WriteTransaction


def put_schedule(
    tx: WriteTransaction, schedule: StoredSchedule, seen: int, tasks: Sequence[NewTask]
) -> list[Submitted] | None:
    """See ScheduleVerbs."""
    query = "update_schedule" if seen else "insert_schedule"
    if not tx.changes(query, *_values(schedule), seen or tx.now):
        return None
    return submit_all(tx, tasks) if tasks else []


def delete_schedule(tx: WriteTransaction, name: str, seen: int) -> bool:
    """See ScheduleVerbs."""
    return tx.changes("delete_schedule", name, seen) > 0


def schedule(reader: Reader, name: str) -> StoredSchedule | None:
    """See ScheduleVerbs."""
    return reader.first(RECORDS.schedule, "schedule", name)


def schedules(reader: Reader) -> list[StoredSchedule]:
    """See ScheduleVerbs."""
    return reader.all(RECORDS.schedule, "schedules")


def due_schedules(reader: Reader, limit: int) -> list[StoredSchedule]:
    """See ScheduleVerbs."""
    return reader.all(RECORDS.schedule, "due_schedules", micros(reader.now()), limit)


def _values(schedule: StoredSchedule) -> Row:
    return (
        schedule.name,
        canonical(schedule.spec, name="spec"),
        micros(schedule.anchored_at),
        micros(schedule.tick_at),
        micros_or_none(schedule.due_at),
        int(schedule.waits_for_last),
        int(schedule.declared),
        schedule.declared_by,
        micros_or_none(schedule.paused_at),
        schedule.paused_by,
        schedule.pause_reason,
        micros_or_none(schedule.last_tick_at),
        schedule.last_task_id,
        micros_or_none(schedule.fired_at),
        micros_or_none(schedule.skipped_at),
    )
