"""Schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.model.canonical import canonical, parse
from holdfast.model.schedule import StoredSchedule
from holdfast.model.task import NewTask, Submitted
from holdfast.model.worker import WorkerState
from tests.store.stateful.oracle.submitting import submit_one
from tests.store.stateful.oracle.tables import Tables

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def put_schedule(
    tables: Tables, schedule: StoredSchedule, seen: int, tasks: Sequence[NewTask], now: datetime
) -> list[Submitted] | None:
    stored = tables.schedules.get(schedule.name)
    if (0 if stored is None else stored.revision) != seen:
        return None
    spec = parse(canonical(schedule.spec))
    created_at = now if stored is None else stored.created_at
    tables.schedules[schedule.name] = replace(schedule, spec=spec, revision=seen + 1, created_at=created_at)
    return [submit_one(tables, task, now) for task in tasks]


def delete_schedule(tables: Tables, name: str, seen: int) -> bool:
    stored = tables.schedules.get(name)
    if stored is None or stored.revision != seen:
        return False
    del tables.schedules[name]
    return True


def shown(tables: Tables, stored: StoredSchedule) -> StoredSchedule:
    last = tables.tasks.get(stored.last_task_id or "")
    return replace(
        stored,
        last_state=None if last is None else last.task.state,
        last_ended_at=None if last is None else last.task.finished_at,
        declarer_lives=_lives(tables, stored.declared_by),
    )


def due_schedules(tables: Tables, limit: int, now: datetime) -> list[StoredSchedule]:
    everything = sorted(tables.schedules)
    found = [shown(tables, tables.schedules[name]) for name in everything]
    due = [one for one in found if (one.due_at is not None and one.due_at <= now and _may_fire(one)) or one.is_orphan]
    return sorted(due, key=lambda one: (one.due_at is None, one.due_at or now, one.name))[:limit]


def next_ticks(tables: Tables) -> Iterator[datetime]:
    for stored in tables.schedules.values():
        seen = shown(tables, stored)
        if seen.is_orphan:
            yield LONG_AGO
        elif seen.due_at is not None and _may_fire(seen):
            yield seen.due_at


def _may_fire(seen: StoredSchedule) -> bool:
    return not (seen.waits_for_last and seen.last_is_open)


def _lives(tables: Tables, worker_id: str | None) -> bool:
    row = tables.workers.get(worker_id or "")
    return row is not None and row.worker.state is not WorkerState.DEAD
