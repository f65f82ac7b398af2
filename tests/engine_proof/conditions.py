"""Waiting for something to become true, and never for a time that is hoped to be long enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE = 60.0
"""Seconds a condition gets before whoever waits gives up; an idle machine needs one or two."""


async def eventually(
    what: str, condition: Callable[[], Awaitable[bool] | bool], *, within: float = PATIENCE, every: float = 0.02
) -> None:
    """Return as soon as the condition holds; fail, naming it, when it does not in time."""
    give_up_at = time.monotonic() + within
    while True:
        holds = condition()
        if await holds if isinstance(holds, Awaitable) else holds:
            return
        assert time.monotonic() < give_up_at, f"not within {within:g} s: {what}"
        await asyncio.sleep(every)
