"""Noticing what other processes wrote: a cheap look at SQLite's change counter.

``PRAGMA data_version`` costs about 3 us and changes whenever another connection committed. It is asked on the writer's
own connection, to whose commits it is blind: what this process writes is hinted at by name already. It cannot tell what
the others changed; its hint is ANYTHING.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import apsw

from holdfast.store import background
from holdfast.store.base import ANYTHING
from holdfast.store.hints import LocalHints

INTERVAL = 0.004
"""Seconds between two looks, while there is a listener: the price of a hint's latency, 0.1 % of a core."""


class ChangeProbe:
    """Looks while there is a listener."""

    def __init__(self, version: Callable[[], int | None], hints: LocalHints) -> None:
        """``version`` returns the change counter, or None while it must not be asked."""
        self._version = version
        self._hints = hints
        self._seen: int | None = None
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Begin to look, unless already looking."""
        if self._task is None or self._task.done():
            # Looked at before the listener goes on: what changes from here on is news to it.
            self._seen = self._ask()
            self._task = background.Loop("holdfast-change-probe", self._look, going=lambda: self._hints.wanted).start()

    async def _look(self) -> None:
        await asyncio.sleep(INTERVAL)
        version = self._ask()
        if version is not None and version != self._seen:
            self._seen = version
            self._hints.publish({ANYTHING})

    def _ask(self) -> int | None:
        """Return the counter. None, which the next look takes for a change, while it cannot be read."""
        with suppress(apsw.Error):  # busy, or worse: the next look, or the next call of the store, finds out
            return self._version()
        return None

    async def close(self) -> None:
        """Stop looking."""
        await background.end(self._task)
