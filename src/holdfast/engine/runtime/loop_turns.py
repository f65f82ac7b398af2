"""Turns of the event loop: a limit on replay, which waits for nothing and would otherwise block the loop.

All attempts of a process share one count. In each turn a fixed number of lines is replayed. The lines after them are
replayed in the next turn. So neither one long journal nor many journals delay heartbeats, timeouts and other tasks.
Large results count as many lines, also while they are encoded: if answers for a hundred steps arrive in one turn,
their results are recorded in turns of their own.
"""

from __future__ import annotations

import asyncio
from typing import Final

REPLAYED_IN_A_TURN: Final = 100
"""Lines. Each takes some tens of microseconds, including the task's own code between two lines."""

BYTES_LIKE_A_LINE: Final = 10_000
"""To encode or decode so many bytes takes about as long as to replay a line."""

READ_IN_A_TURN: Final = 500
"""Lines of a journal that is being read; each takes a few microseconds."""


class Turns:
    """Counts what is replayed and encoded in the current turn of the event loop."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        """Start at zero."""
        self._taken = 0

    async def take(self, size: int = 0) -> None:
        """Count one line with so many bytes. Return in a later turn if this turn has done enough."""
        await self.wait()
        self._count(1 + size // BYTES_LIKE_A_LINE)

    async def wait(self) -> None:
        """Return in a turn that has not done enough yet. Callers continue in the order in which they came."""
        while self._taken >= REPLAYED_IN_A_TURN:  # noqa: ASYNC110 - a count of turns, and a turn is what is waited for
            await asyncio.sleep(0)

    def count_bytes(self, size: int) -> None:
        """Count what was encoded in this turn. Results smaller than a line cost nothing beside their step."""
        self._count(size // BYTES_LIKE_A_LINE)

    def _count(self, lines: int) -> None:
        if self._taken == 0:
            asyncio.get_running_loop().call_soon(self._start_over)
        self._taken += lines

    def _start_over(self) -> None:
        self._taken = 0
