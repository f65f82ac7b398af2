"""What a store does in the background: started by name, and ended so that nothing of it is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger(__name__)


def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Have this go on by itself. What it dies of is said at once: nobody waits for it."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_say_if_it_failed)
    return task


async def end(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel them, and wait until they are over, however they end.

    A cancel of whoever waits is raised after that, and not before: ``gather`` waits for its tasks all the same.
    """
    going = [task for task in tasks if task is not None]
    for task in going:
        task.cancel()
    await asyncio.gather(*going, return_exceptions=True)


def _say_if_it_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s has failed", task.get_name(), exc_info=error)
