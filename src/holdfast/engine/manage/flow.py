"""Steering all work from any process: what is paused, and how full a queue may be."""

from __future__ import annotations

from holdfast.engine.runtime import log
from holdfast.engine.schedules.manage import pause_schedule, paused_schedules, unpause_schedule
from holdfast.model.pause import SCHEDULE, Pause
from holdfast.model.queue_settings import QueueChange, QueueSettings, check_change
from holdfast.store.base import StateStore


async def pause(store: StateStore, subject: str, *, by: str, reason: str | None) -> Pause:
    """Pause a subject; one that is paused already stays as it is."""
    schedule = _schedule_in(subject)
    if schedule is None:
        paused = await store.pause(subject, by=by, reason=reason)
    else:
        paused = await pause_schedule(store, schedule, by=by, reason=reason)
    log.logger.info("%s is paused by %s%s", subject, paused.by, f": {paused.reason}" if paused.reason else "")
    return paused


async def unpause(store: StateStore, subject: str, *, by: str) -> bool:
    """End a pause; return whether there was one."""
    schedule = _schedule_in(subject)
    was_paused = await (store.unpause(subject) if schedule is None else unpause_schedule(store, schedule))
    if was_paused:
        log.logger.info("%s is unpaused by %s", subject, by)
    return was_paused


async def set_queue(store: StateStore, name: str, change: QueueChange) -> QueueSettings:
    """Change the settings of a queue. The same again writes nothing: every process may say it when it starts."""
    check_change(name, change)
    for settings in await store.queue_settings():
        if settings.name == name and not change.changes(settings):
            return settings
    return await store.set_queue(name, **change.asked())


async def pauses(store: StateStore) -> list[Pause]:
    """Return everything that is paused, by subject."""
    return sorted([*await store.pauses(), *await paused_schedules(store)], key=lambda pause: pause.subject)


def _schedule_in(subject: str) -> str | None:
    """Return the schedule that a subject names; its pause is a part of its row. None: it is something else."""
    kind, colon, name = subject.partition(":")
    return name if colon and kind == SCHEDULE else None
