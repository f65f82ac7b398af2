"""Pausing queues, names and single tasks from any process, and letting them go on."""

from __future__ import annotations

from holdfast.engine.runtime import log
from holdfast.model.pause import Pause
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
