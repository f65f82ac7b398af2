"""Steering all work from any process: what is paused, and how full a queue may be."""

from __future__ import annotations

from holdfast.engine.runtime import log
from holdfast.model.pause import Pause
from holdfast.model.queue_settings import KEEP, Keep, QueueSettings
from holdfast.store.base import StateStore


async def pause(store: StateStore, subject: str, *, by: str, reason: str | None) -> Pause:
    """Pause a subject; one that is paused already stays as it is."""
    paused = await store.pause(subject, by=by, reason=reason)
    log.logger.info("%s is paused by %s%s", subject, paused.by, f": {paused.reason}" if paused.reason else "")
    return paused


async def unpause(store: StateStore, subject: str, *, by: str) -> bool:
    """End a pause; return whether there was one."""
    was_paused = await store.unpause(subject)
    if was_paused:
        log.logger.info("%s is unpaused by %s", subject, by)
    return was_paused


async def set_queue(store: StateStore, name: str, *, max_pending: int | Keep | None) -> QueueSettings:
    """Change the settings of a queue. The same again writes nothing: every process may say it when it starts."""
    for settings in await store.queue_settings():
        if settings.name == name and max_pending in {settings.max_pending, KEEP}:
            return settings
    return await store.set_queue(name, max_pending=max_pending)
