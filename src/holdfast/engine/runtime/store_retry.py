"""Retries of calls to a store that does not answer. It may come back, and no unfinished work may be lost until then."""

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
PERMANENT_ERRORS = (StoreClosed, StoreForked, StoreReplaced, StoreDamaged, NotAStore, SchemaMismatch)
"""Errors that waiting does not mend: a person has to act on the store first. ReadOnlyStore is not among them, because
a database is read-only for some seconds during every fail-over."""

OUTAGE: ContextVar[Outage] = ContextVar("holdfast_outage")
"""The Outage of the store that the current attempt works with."""


def endless_pauses(error: StoreError, failures: int) -> float | None:
    """Return longer and longer pauses. Give up only on a store that cannot come back."""
    return None if isinstance(error, PERMANENT_ERRORS) else pause_after(failures)


def short_pauses(error: StoreError, failures: int) -> float | None:
    """Return pauses for a few seconds in all, then give up: a caller waits for the error."""
    is_hopeless = isinstance(error, (*PERMANENT_ERRORS, ReadOnlyStore))
    return None if is_hopeless or failures > _FEW else _FEW_PAUSE * 2**failures


async def call_store(
    ask: Callable[[], Awaitable[T]],
    outage: Outage | None = None,
    *,
    permanent: tuple[type[StoreError], ...] = PERMANENT_ERRORS,
) -> T:
    """Call the store until it answers. Only for reads, and for writes that are safe to send twice."""
    try:
        return await ask()
    except permanent:
        raise
    except StoreError as error:
        streak = Streak("a call to the store", outage or OUTAGE.get(None))
        pause = streak.failed(error)
    try:
        while True:
            await asyncio.sleep(pause)
            try:
                answer = await ask()
            except permanent:
                raise
            except StoreError as error:
                pause = streak.failed(error)
            else:
                streak.worked()
                return answer
    finally:
        streak.left()
