"""Watcher: one listener for a whole Holdfast, and whoever in it wants to know about a topic.

Hints only say "look now". They may come for nothing and may be missing, so whoever watches also looks by the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.store.background import Loop
from holdfast.store.base import ANYTHING, StateStore


class Watcher:
    """Hands hints to those who asked for their topic."""

    def __init__(self, store: StateStore) -> None:
        """Listen once somebody watches."""
        self._store = store
        self._watching: dict[str, set[Callable[[], None]]] = {}
        self._loop = Loop("holdfast-watcher", self._listen, outage=store.outage)
        self._listening: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, topic: str, nudge: Callable[[], None]) -> Iterator[None]:
        """Call ``nudge`` whenever the topic is hinted at, until the block ends. ANYTHING hears everything."""
        self.add(topic, nudge)
        try:
            yield
        finally:
            self.remove(topic, nudge)

    def add(self, topic: str, nudge: Callable[[], None]) -> None:
        """Begin to watch."""
        self._watching.setdefault(topic, set()).add(nudge)
        if self._listening is None or self._listening.done():
            self._listening = self._loop.start()

    def remove(self, topic: str, nudge: Callable[[], None]) -> None:
        """Stop watching."""
        nudges = self._watching.get(topic)
        if nudges is not None:
            nudges.discard(nudge)
            if not nudges:
                del self._watching[topic]

    async def _listen(self) -> None:
        async with self._store.listen() as listener:
            self._loop.worked()
            while True:
                self._tell(await listener.wait(None))

    def _tell(self, topics: frozenset[str]) -> None:
        heard = self._watching if ANYTHING in topics else (topics | {ANYTHING}) & self._watching.keys()
        for nudge in [nudge for topic in heard for nudge in self._watching[topic]]:
            nudge()

    async def close(self) -> None:
        """Stop listening."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            # However it ended: that was said when it did. A cancel of whoever closes is raised when it is over.
            await asyncio.gather(listening, return_exceptions=True)
