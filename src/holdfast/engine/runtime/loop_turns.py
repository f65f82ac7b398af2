"""Turns of the event loop: a limit on replay, which waits for nothing and would otherwise block the loop.

All attempts of a process share one count. In each turn a fixed number of lines is replayed. The lines after them are
replayed in the next turn. So neither one long journal nor many journals delay heartbeats, timeouts and other tasks.
Large results count as many lines, also while they are encoded: if answers for a hundred steps arrive in one turn,
their results are recorded in turns of their own. One result with very many items is encoded and decoded in pieces,
over several turns. A thread would not help: msgspec and pydantic keep the interpreter's lock until they are done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, TypeVar

from holdfast.model.pieces import Pieces, finish

T = TypeVar("T")

REPLAYED_IN_A_TURN: Final = 100
"""Lines. Each takes some tens of microseconds, including the task's own code between two lines."""

BYTES_LIKE_A_LINE: Final = 10_000
"""To encode or decode so many bytes takes about as long as to replay a line."""

ITEMS_LIKE_A_LINE: Final = 40
"""To encode or decode so many items takes about as long as to replay a line, if they have to be flattened."""

READ_IN_A_TURN: Final = 500
"""Lines of a journal that is being read; each takes a few microseconds."""


class Turns:
    """Counts what is replayed and encoded in the current turn of the event loop."""

    __slots__ = ("_is_counting", "_taken", "_waiting")

    def __init__(self) -> None:
        """Start at zero."""
        self._taken = 0
        self._is_counting = False
        """Whether the count starts over in the next turn."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, size: int = 0) -> None:
        """Count one line with so many bytes. Return in a later turn if this turn has done enough."""
        await self.wait()
        self._count(1 + size // BYTES_LIKE_A_LINE)

    async def wait(self) -> None:
        """Return in a turn that has not done enough yet.

        Each turn wakes only as many callers as it can serve: ten thousand branches would otherwise ask in every turn.
        """
        line_up = self._waiting.append
        while self._taken >= REPLAYED_IN_A_TURN:
            turn = asyncio.get_running_loop().create_future()
            line_up(turn)
            await turn
            line_up = self._waiting.appendleft  # the turn was used up by callers before it

    def count_bytes(self, size: int) -> None:
        """Count what was encoded in this turn. Results smaller than a line cost nothing beside their step."""
        self._count(size // BYTES_LIKE_A_LINE)

    async def spread(self, work: Pieces[T]) -> T:
        """Do large work over as many turns as it needs."""
        result, cancelled = await self.spread_to_end(work)
        if cancelled is not None:
            raise cancelled
        return result

    async def spread_to_end(self, work: Pieces[T]) -> tuple[T, asyncio.CancelledError | None]:
        """Do large work over as many turns as it needs; in this turn, if the caller is cancelled meanwhile.

        Then return the cancellation as well: the caller first records what was done, and raises it after that.
        """
        while True:
            try:
                items = next(work)
            except StopIteration as end:
                result: T = end.value
                return result, None
            self._count(1 + items // ITEMS_LIKE_A_LINE)
            try:
                await self.wait()
            except asyncio.CancelledError as cancelled:
                return finish(work), cancelled

    def _count(self, lines: int) -> None:
        self._taken += lines
        if not self._is_counting and self._taken:
            self._start_over_soon()

    def _start_over_soon(self) -> None:
        self._is_counting = True
        asyncio.get_running_loop().call_soon(self._start_over)

    def _start_over(self) -> None:
        self._taken, self._is_counting = 0, False
        woken = 0
        while self._waiting and woken < REPLAYED_IN_A_TURN:
            turn = self._waiting.popleft()
            if not turn.done():  # its caller was not cancelled
                turn.set_result(None)
                woken += 1
        if self._waiting:
            self._start_over_soon()
