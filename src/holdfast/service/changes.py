"""Looking again whenever something changed: hints from the store, and a slow poll behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from holdfast.model.errors import PRUNED, NotFound, StoreBusy, StoreUnavailable
from holdfast.store.background import Loop
from holdfast.store.base import ANYTHING, StateStore

__all__ = ["ANYTHING", "LOOK_EVERY", "NOT_SOONER", "Loop", "View", "follow"]

T = TypeVar("T")

LOOK_EVERY = 1.0
"""Seconds between two looks where no hint comes; ages and leases change by themselves."""

NOT_SOONER = 0.1
"""Seconds between two looks where hints come without a pause."""


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """What was seen last, and whether the store still answers."""

    seen: T
    away: str | None = None
    """Why the store does not answer now; None where it does."""


async def follow(
    store: StateStore, look: Callable[[], Awaitable[T]], *, topic: str | None = None, every: float = LOOK_EVERY
) -> AsyncGenerator[View[T], None]:
    """Yield what ``look`` returns now, and again whenever something changed, or a second has passed.

    ``topic`` is what to watch, such as ``task:<id>``; by default everything. A store that goes away is waited for, and
    every view of that time carries the reason; a store that never answered raises. Close it (``aclosing``) before
    the store.
    """
    view: View[T] | None = None
    async with store.listen() as listener:
        while True:
            try:
                view = View(await look())
            except (StoreUnavailable, StoreBusy) as error:
                if view is None:
                    raise
                view = replace(view, away=str(error))
            except NotFound as error:
                if view is None or error.what != "task":
                    raise
                raise NotFound("task", error.identifier, where=PRUNED) from error
            yield view
            await asyncio.sleep(NOT_SOONER)
            deadline = asyncio.get_running_loop().time() + every
            while (ahead := deadline - asyncio.get_running_loop().time()) > 0:
                topics = await listener.wait(timeout=ahead)
                if topics and (topic is None or topics & {topic, ANYTHING}):
                    break
