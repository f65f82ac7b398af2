"""Patience with a store that does not answer. It may come back; work that is under way must not be lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from holdfast.model.errors import (
    NotAStore,
    ReadOnlyStore,
    SchemaMismatch,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreForked,
    StoreReplaced,
)
from holdfast.store.outage import Outage, Streak, pause_after

T = TypeVar("T")

_FEW, _FEW_PAUSE = 4, 0.1
HOPELESS = (StoreClosed, StoreForked, StoreReplaced, StoreDamaged, NotAStore, SchemaMismatch)
"""No answer to wait for: a person has to do something about the store first. A store that can only be read is none of
these: every fail-over of a database has such seconds."""

OUTAGE: ContextVar[Outage] = ContextVar("holdfast_outage")
"""Of the store that an attempt works with."""


def endless_patience(error: StoreError, failures: int) -> float | None:
    """Pause longer and longer, but never give up on a store that may come back."""
    return None if isinstance(error, HOPELESS) else pause_after(failures)


def little_patience(error: StoreError, failures: int) -> float | None:
    """Try for a few seconds, then give up: there is a caller who wants to know."""
    is_hopeless = isinstance(error, (*HOPELESS, ReadOnlyStore))
    return None if is_hopeless or failures > _FEW else _FEW_PAUSE * 2**failures


async def insist(ask: Callable[[], Awaitable[T]], outage: Outage | None = None) -> T:
    """Ask until the store answers. Only for questions, and for what may be sent twice."""
    try:
        return await ask()
    except HOPELESS:
        raise
    except StoreError as error:
        streak = Streak("a question to the store", outage or OUTAGE.get(None))
        pause = streak.failed(error)
    try:
        while True:
            await asyncio.sleep(pause)
            try:
                answer = await ask()
            except HOPELESS:
                raise
            except StoreError as error:
                pause = streak.failed(error)
            else:
                streak.worked()
                return answer
    finally:
        streak.left()
