"""Declarations: the schedules in the code of a worker, and whose declaration counts.

A worker says in its registered details what it declares. The declaration that was registered last counts: an older
worker that goes on beside a newer one changes nothing back. If its worker dies, the newest living other one counts; if
there is none, the schedule fires nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.engine.api.definition import Definitions
from holdfast.engine.runtime import log
from holdfast.engine.runtime.services import Services
from holdfast.model.due_schedule import abandoned, replanned
from holdfast.model.errors import InvalidValue
from holdfast.model.schedule import ScheduleSpec, StoredSchedule, read_spec
from holdfast.model.worker import Worker, WorkerState

DETAIL = "schedules"
"""The key in a worker's details under which its declarations stand, by name."""


def declared(definitions: Definitions) -> dict[str, ScheduleSpec]:
    """Return the schedules that the definitions declare, by name."""
    found = {name: definitions.get(name) for name in definitions.names}
    return {name: one.schedule for name, one in found.items() if one is not None and one.schedule is not None}


def as_detail(definitions: Definitions) -> dict[str, Any]:
    """Return what a worker registers about its declarations; nothing where there are none."""
    specs = declared(definitions)
    return {DETAIL: {name: spec.to_json() for name, spec in specs.items()}} if specs else {}


async def declare(services: Services, worker_id: str, *, afresh: bool) -> None:
    """Let the declarations of this worker count.

    Not ``afresh``: the worker was dead for the others, and is back with the same code. Then only where the declaration
    of no other living worker counts, for that may be a newer one.
    """
    for name, spec in declared(services.definitions).items():
        while not await _declare(services, worker_id, name, spec, afresh=afresh):
            pass  # another process changed the schedule in between: look again


async def _declare(services: Services, worker_id: str, name: str, spec: ScheduleSpec, *, afresh: bool) -> bool:
    store = services.store
    stored = await store.schedule(name)
    if stored is not None and not stored.declared:
        log.logger.warning(
            "the schedule %r was made with hold.schedule, so the one that task %r declares in its code does not count "
            "before that is deleted: holdfast schedules delete %s",
            name,
            spec.task,
            name,
        )
        return True
    if stored is not None and not afresh and stored.declarer_lives:
        return True
    changed = replanned(stored, name, spec, await store.now(), declared_by=worker_id)
    if await store.put_schedule(changed, seen=0 if stored is None else stored.revision) is None:
        return False
    services.note_due(changed.due_at)
    return True


async def declare_again(services: Services, name: str) -> None:
    """Let the newest living worker that declares the name count, now that the schedule made at run time is gone.

    A worker of a newer version may declare what this one cannot read: that declaration counts when it starts again.
    """
    store = services.store
    declarers = living_declarers(name, await store.workers())
    if not declarers:
        return
    newest = declarers[-1]
    try:
        spec = read_spec(_declarations(newest)[name])
        made = replanned(None, name, spec, await store.now(), declared_by=newest.id)
    except InvalidValue as error:
        log.logger.warning("the schedule %r that worker %s declares does not count yet: %s", name, newest.id, error)
        return
    if await store.put_schedule(made, seen=0) is not None:  # otherwise it was made again meanwhile
        services.note_due(made.due_at)


async def hand_over(services: Services, orphan: StoredSchedule, workers: Sequence[Worker]) -> bool:
    """Let the newest living worker that declares the schedule count; without one it fires nothing. Say if it changed.

    Raises InvalidValue where a newer version of Holdfast declares it: a worker of that version hands it over.
    """
    declarers = living_declarers(orphan.name, workers)
    if declarers:
        newest = declarers[-1]
        spec = read_spec(_declarations(newest)[orphan.name])
        now = await services.store.now()
        changed = replanned(orphan, orphan.name, spec, now, declared_by=newest.id)
    else:
        changed = abandoned(orphan)
    done = await services.store.put_schedule(changed, seen=orphan.revision) is not None
    if done and not declarers:
        log.logger.warning("the schedule %r fires nothing any more: no living worker declares it", orphan.name)
    return done


def living_declarers(name: str, workers: Sequence[Worker]) -> list[Worker]:
    """Return the workers that are not dead and declare the schedule, the newest last."""
    found = [one for one in workers if one.state is not WorkerState.DEAD and name in _declarations(one)]
    return sorted(found, key=lambda worker: (worker.started_at, worker.id))


def _declarations(worker: Worker) -> Mapping[str, Any]:
    found = worker.details.get(DETAIL)
    return found if isinstance(found, Mapping) else {}
