"""Turns of the event loop: a limit on replay, which waits for nothing and would otherwise block the loop.

All attempts of a process share one count. In each turn a fixed number of lines is replayed. The lines after them are
replayed in the next turn. So neither one long journal nor many journals delay heartbeats, timeouts and other tasks.
"""

from __future__ import annotations

import asyncio
from typing import Final

REPLAYED_IN_A_TURN: Final = 100
"""Lines. Each takes some tens of microseconds, including the task's own code between two lines."""

READ_IN_A_TURN: Final = 500
"""Lines of a journal that is being read; each takes a few microseconds."""


class Turns:
    """Counts the lines replayed in the current turn of the event loop."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        """Start at zero."""
        self._taken = 0

    async def take(self) -> None:
        """Count one line. Return in the next turn if this turn has replayed enough."""
        if self._taken == 0:
            asyncio.get_running_loop().call_soon(self._start_over)
        self._taken += 1
        if self._taken > REPLAYED_IN_A_TURN:
            await asyncio.sleep(0)

    def _start_over(self) -> None:
        self._taken = 0
