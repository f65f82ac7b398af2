"""Turns of the event loop: what has been done already is replayed without waiting for anything, and so would block it.

All attempts of a process share one count. In each turn a fixed number of lines is replayed; what comes after them goes
on in the next turn. So heartbeats, timeouts and other tasks wait for no long journal, nor for many of them at once.
"""

from __future__ import annotations

import asyncio
from typing import Final

REPLAYED_IN_A_TURN: Final = 100
"""Lines. Each takes some tens of microseconds, with the task's own code between two of them."""

READ_IN_A_TURN: Final = 500
"""Lines of a journal that is being read; each takes a few microseconds."""


class Turns:
    """Counts what is replayed in the current turn of the event loop."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        """Begin with nothing."""
        self._taken = 0

    async def take(self) -> None:
        """Count one line; return in the next turn where this one has had enough."""
        if self._taken == 0:
            asyncio.get_running_loop().call_soon(self._start_over)
        self._taken += 1
        if self._taken > REPLAYED_IN_A_TURN:
            await asyncio.sleep(0)

    def _start_over(self) -> None:
        self._taken = 0
