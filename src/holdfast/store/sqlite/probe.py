"""Noticing what other processes wrote: a cheap look at SQLite's change counter.

``PRAGMA data_version`` costs about 3 us and changes whenever another connection committed, so the probe has a
connection of its own. It cannot tell what changed, nor whether it was this process: its hint is ANYTHING.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import apsw

from holdfast.store.base import ANYTHING
from holdfast.store.hints import Hints

INTERVAL = 0.004
"""Seconds between two looks, while anybody listens: the price of a hint's latency, 0.1 % of a core."""


class ChangeProbe:
    """Looks while somebody listens."""

    def __init__(self, connection: apsw.Connection, hints: Hints) -> None:
        """Take over the connection."""
        self._connection = connection
        self._hints = hints
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Begin to look, unless already looking."""
        if self._task is None or self._task.done():
            # Looked at before the listener goes on: what changes from here on is news to it.
            self._task = asyncio.create_task(self._look(self._version()), name="holdfast-change-probe")

    async def _look(self, seen: int) -> None:
        version = seen
        while self._hints.wanted:
            await asyncio.sleep(INTERVAL)
            with suppress(apsw.Error):  # busy, or worse: the next look, or somebody's next call, finds out
                version = self._version()
            if version != seen:
                seen = version
                self._hints.publish({ANYTHING})

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").get)

    async def close(self) -> None:
        """Stop looking and let go of the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._connection.close()
