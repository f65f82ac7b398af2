"""Patience with a store that does not answer. It may come back; work that is under way must not be lost meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
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

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE, _DOUBLINGS = 0.05, 2.0, 6
_FEW, _FEW_PAUSE = 4, 0.1
_HOPELESS = (StoreClosed, StoreForked, StoreReplaced, StoreDamaged, NotAStore, ReadOnlyStore, SchemaMismatch)
"""No answer to wait for: somebody has to do something about the store first."""

_log = logging.getLogger(__name__)


def endless_patience(error: StoreError, failures: int) -> float | None:
    """Pause longer and longer, but never give up on a store that may come back."""
    if isinstance(error, _HOPELESS):
        return None
    return float(min(_FIRST_PAUSE * 2 ** min(failures - 1, _DOUBLINGS), _LONGEST_PAUSE))


def little_patience(error: StoreError, failures: int) -> float | None:
    """Try for a few seconds, then give up: there is a caller who wants to know."""
    is_hopeless = endless_patience(error, failures) is None
    return None if is_hopeless or failures > _FEW else _FEW_PAUSE * 2**failures


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the store answers. Only for questions, and for what may be sent twice."""
    failures = 0
    while True:
        try:
            return await ask()
        except StoreError as error:
            failures += 1
            pause = endless_patience(error, failures)
            if pause is None:
                raise
            _log.warning("the store does not answer (%s); asking again in %.2g s", error, pause)
            await asyncio.sleep(pause)
