"""Hints inside one process: the listeners, and the hints that each has not received yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class LocalListener:
    """One listener's unread topics, coalesced."""

    def __init__(self) -> None:
        """Start with nothing to tell."""
        self._topics: set[str] = set()
        self._arrived = asyncio.Event()

    def tell(self, topics: Iterable[str]) -> None:
        """Note these topics and wake the listener."""
        self._topics.update(topics)
        if self._topics:
            self._arrived.set()

    async def wait(self, timeout: float | None = None) -> frozenset[str]:
        """See holdfast.store.base.Listener."""
        try:
            async with asyncio.timeout(timeout):
                await self._arrived.wait()
        except TimeoutError:
            return frozenset()
        self._arrived.clear()
        topics, self._topics = frozenset(self._topics), set()
        return topics


class LocalHints:
    """All listeners of one store object."""

    def __init__(self) -> None:
        """Start without listeners."""
        self._listeners: set[LocalListener] = set()

    def publish(self, topics: Iterable[str]) -> None:
        """Tell every listener."""
        topics = frozenset(topics)
        for listener in self._listeners:
            listener.tell(topics)

    @property
    def wanted(self) -> bool:
        """Whether there is a listener."""
        return bool(self._listeners)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[LocalListener]:
        """Listen until the block ends."""
        listener = LocalListener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
