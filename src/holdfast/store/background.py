"""Background loops, such as heartbeats: started by name, they survive their own errors, and end without a rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from holdfast.model.errors import StoreClosed, StoreForked
from holdfast.redaction import make_logger
from holdfast.store.outage import LONGEST_PAUSE, Outage, Streak

_log = make_logger(__name__)


def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Have this go on by itself. What it dies of is logged at once: no code waits for it."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


async def end(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel them, and wait until they are over, however they end.

    A cancel of the waiting code is raised after that, and not before: ``gather`` waits for its tasks all the same.
    """
    going = [task for task in tasks if task is not None]
    for task in going:
        task.cancel()
    await asyncio.gather(*going, return_exceptions=True)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s has failed", task.get_name(), exc_info=error)


class Loop:
    """Does one thing again and again. Whatever a turn raises, the next one follows after a pause.

    Every loop of this library that runs in the background is one of these, and a test holds it to that: a loop that an
    error ends is worse than a process that an error ends: the process is missed, the loop is not.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], Awaitable[object]],
        *,
        outage: Outage | None = None,
        going: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        hopeless: tuple[type[Exception], ...] = (),
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        """``turn`` is one turn, its waits included. ``hopeless`` errors end the loop, and are raised.

        It is over when ``going`` says no, and when the store is closed.
        """
        self._longest_pause = longest_pause
        self.name = name
        self.turn = turn
        self._streak = Streak(name, outage)
        self._going = going
        self._sleep = sleep
        self._hopeless = hopeless

    def start(self) -> asyncio.Task[None]:
        """Begin."""
        return start(self.run(), self.name)

    def worked(self) -> None:
        """Note within a turn that what failed before works: for turns that take as long as all goes well."""
        self._streak.worked()

    async def run(self) -> None:
        """Do turn after turn."""
        streak, pause = self._streak, 0.0
        try:
            while self._going():
                try:
                    if pause:
                        await self._sleep(pause)
                    await self.turn()
                except self._hopeless:
                    raise
                except (StoreClosed, StoreForked):
                    return
                except Exception as error:  # noqa: BLE001 - whatever it is: see above
                    pause = min(streak.failed(error), self._longest_pause)
                else:
                    pause = 0.0
                    streak.worked()
        finally:
            streak.left()
