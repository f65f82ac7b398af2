"""Making, listing, pausing, triggering and deleting schedules, from any process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.engine.api.handle import Handle
from holdfast.engine.api.new_task import handle_of, new_task
from holdfast.engine.manage.limits import check_limits
from holdfast.engine.runtime.services import Services
from holdfast.engine.schedules.declarations import declare_again, living_declarers
from holdfast.engine.schedules.times import Times, spec_at
from holdfast.model.checks import check_name
from holdfast.model.deadline import as_seconds
from holdfast.model.due_schedule import paused, replanned, task_of, unpaused
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.pause import SCHEDULE, Pause
from holdfast.model.schedule import Schedule, ScheduleSpec, StoredSchedule, check_schedule_name, read_spec
from holdfast.model.ticks import due_time, next_tick
from holdfast.model.worker import Worker
from holdfast.store.base import StateStore

NEXT_SHOWN = 3
"""Upcoming runs that a listing shows of each schedule."""


async def make_schedule(
    services: Services,
    name: str,
    task: Any,  # noqa: ANN401 - a definition, with its arguments or without, or a name
    args: Sequence[Any],
    times: Times,
    *,
    deadline: float | timedelta | None,
    **options: Any,  # noqa: ANN401 - of new_task
) -> Schedule:
    """Store a schedule under this name, or put it in place of the one that has the name; return it.

    Nothing changes if it is the same. Raises Conflict if living workers declare a schedule of that name in their code.
    """
    check_schedule_name(name)
    if isinstance(deadline, datetime):
        raise InvalidValue(f"deadline is {deadline}; each task needs one of its own: give a time from its submission")
    store, now = services.store, await services.store.now()
    new, definition = new_task(services.definitions, task, args, now=now, **options)
    await check_limits(store, new.limits)
    usual = None if definition is None else definition.deadline
    spec = spec_at(
        times,
        now,
        task=new.name,
        user_input=new.user_input,
        queue=new.queue,
        priority=new.priority,
        agent_id=new.agent_id,
        deadline=usual if deadline is None else timedelta(seconds=as_seconds(deadline, what="the deadline")),
        budget=new.budget,
        labels=new.labels,
        limits=new.limits,
    )
    while True:
        stored = await store.schedule(name)
        if stored is not None and stored.declared:
            await _refuse_declared(store, name, "choose another name, or take it out of the code")
        elif stored is not None and stored.spec == spec.to_json():
            break
        changed = replanned(stored, name, spec, await store.now())
        if await store.put_schedule(changed, seen=0 if stored is None else stored.revision) is not None:
            services.note_due(changed.due_at)
            break
    return await read_schedule(services, name)


async def read_schedules(services: Services) -> list[Schedule]:
    """Return all schedules, by name."""
    stored = await services.store.schedules()
    workers = await services.store.workers() if any(one.declared for one in stored) else []
    return [_shown(one, workers) for one in stored]


async def read_schedule(services: Services, name: str) -> Schedule:
    """Return one schedule. Raises NotFound."""
    stored = await _existing(services.store, name)
    return _shown(stored, await services.store.workers() if stored.declared else [])


async def delete_schedule(services: Services, name: str) -> bool:
    """Delete a schedule; its tasks stay. Return whether there was one. What living workers declare counts now."""
    store = services.store
    while (stored := await store.schedule(name)) is not None:
        if stored.declared:
            await _refuse_declared(store, name, f"take it out of the code, or pause it: hold.pause('schedule:{name}')")
        if await store.delete_schedule(name, seen=stored.revision):
            await declare_again(services, name)
            return True
    return False


async def trigger_schedule(services: Services, name: str, *, by: str) -> Handle[Any]:
    """Submit a task of the schedule now. Its ticks, a pause and its overlap have nothing to do with it."""
    spec = read_spec((await _existing(services.store, name)).spec)
    task = task_of(name, spec, await services.store.now(), key=None, by=check_name("actor", by))
    return await handle_of(services, task, await services.submitter.put(task), services.definitions.get(spec.task))


async def pause_schedule(store: StateStore, name: str, *, by: str, reason: str | None) -> Pause:
    """Let a schedule fire nothing; one that is paused already stays as it is. Raises NotFound."""
    check_name("actor", by)
    changed = await _change(
        store, name, lambda stored, now: stored if stored.paused_at else paused(stored, now, by=by, reason=reason)
    )
    [pause] = _pauses_of([changed])
    return pause


async def unpause_schedule(store: StateStore, name: str) -> bool:
    """Let a schedule go on with its next tick; return whether it was paused. Raises NotFound."""
    was_paused = (await _existing(store, name)).paused_at is not None
    await _change(store, name, lambda stored, now: unpaused(stored, now) if stored.paused_at else stored)
    return was_paused


async def paused_schedules(store: StateStore) -> list[Pause]:
    """Return the pauses of all schedules."""
    return _pauses_of(await store.schedules())


def _pauses_of(schedules: Sequence[StoredSchedule]) -> list[Pause]:
    return [
        Pause(subject=f"{SCHEDULE}:{one.name}", at=one.paused_at, by=one.paused_by or "", reason=one.pause_reason)
        for one in schedules
        if one.paused_at is not None
    ]


async def _existing(store: StateStore, name: str) -> StoredSchedule:
    """Return a schedule. Raises NotFound."""
    stored = await store.schedule(name)
    if stored is None:
        raise NotFound("schedule", name)
    return stored


async def _change(
    store: StateStore, name: str, decide: Callable[[StoredSchedule, datetime], StoredSchedule]
) -> StoredSchedule:
    """Change a schedule as ``decide`` says, from the row and the time; return the row then. Raises NotFound.

    If another change comes in between, it is decided again.
    """
    while True:
        stored = await _existing(store, name)
        changed = decide(stored, await store.now())
        if changed is stored or await store.put_schedule(changed, seen=stored.revision) is not None:
            return changed


async def _refuse_declared(store: StateStore, name: str, advice: str) -> None:
    declarers = living_declarers(name, await store.workers())
    if declarers:
        raise Conflict(f"the schedule {name!r} is declared in code, by worker {declarers[-1].id}; {advice}")


def _shown(stored: StoredSchedule, workers: Sequence[Worker]) -> Schedule:
    trouble: str | None = None
    upcoming: tuple[datetime, ...] = ()
    try:
        spec = read_spec(stored.spec)
    except InvalidValue as error:
        spec, trouble = ScheduleSpec(task="?"), str(error)
    declarers = living_declarers(stored.name, workers)
    if trouble is None:
        try:
            fires = stored.due_at is not None and (bool(declarers) or not stored.declared)
            upcoming = _upcoming(stored, spec) if fires else ()
        except InvalidValue as error:
            trouble = str(error)
    return Schedule(
        name=stored.name,
        task=spec.task,
        cron=spec.cron,
        every=spec.every,
        timezone=spec.timezone,
        jitter=spec.jitter,
        overlap=spec.overlap,
        catch_up=spec.catch_up,
        queue=spec.queue,
        priority=spec.priority,
        next=upcoming,
        declared=stored.declared,
        declared_by=tuple(worker.id for worker in declarers),
        paused_at=stored.paused_at,
        last_tick_at=stored.last_tick_at,
        last_task_id=stored.last_task_id,
        last_state=stored.last_state,
        fired_at=stored.fired_at,
        skipped_at=stored.skipped_at,
        created_at=stored.created_at,
        trouble=trouble,
    )


def _upcoming(stored: StoredSchedule, spec: ScheduleSpec) -> tuple[datetime, ...]:
    ticks = [stored.tick_at]
    while len(ticks) < NEXT_SHOWN:
        ticks.append(next_tick(spec, stored.anchored_at, ticks[-1]))
    return tuple(due_time(spec, stored.name, tick) for tick in ticks)
