"""Watcher: one listener for a whole Holdfast, which passes hints on to the watchers of a topic.

A hint only means "look now". It may come without a change, and it may be missing. So a watcher also polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.store.background import Loop
from holdfast.store.base import ANYTHING, StateStore


class Watcher:
    """Passes each hint on to the watchers of its topic."""

    def __init__(self, store: StateStore) -> None:
        """Start to listen when the first topic is watched."""
        self._store = store
        self._watching: dict[str, set[Callable[[], None]]] = {}
        self._loop = Loop("holdfast-watcher", self._listen, outage=store.outage)
        self._listening: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, topic: str, nudge: Callable[[], None]) -> Iterator[None]:
        """Call ``nudge`` on every hint about the topic, until the block ends. The topic ANYTHING matches every hint."""
        self.add(topic, nudge)
        try:
            yield
        finally:
            self.remove(topic, nudge)

    def add(self, topic: str, nudge: Callable[[], None]) -> None:
        """Start to watch."""
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
                self._notify(await listener.wait(None))

    def _notify(self, topics: frozenset[str]) -> None:
        watched = self._watching if ANYTHING in topics else (topics | {ANYTHING}) & self._watching.keys()
        for nudge in [nudge for topic in watched for nudge in self._watching[topic]]:
            nudge()

    async def close(self) -> None:
        """Stop listening."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            # Its error, if any, was logged when it ended. A cancellation of the closing caller is raised after that.
            await asyncio.gather(listening, return_exceptions=True)
