"""Where a call is made: on which event loop, in which asyncio task."""

from __future__ import annotations

import asyncio
from typing import Any


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop this thread runs, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def current_task() -> asyncio.Task[Any] | None:
    """Return the asyncio task this is called from, or None."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
