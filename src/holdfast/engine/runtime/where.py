"""Where a call is made: on which event loop, in which asyncio task."""

from __future__ import annotations

import asyncio
from typing import Any

running_loop = asyncio._get_running_loop  # noqa: SLF001 - exported by asyncio, and asked in every call of ``ctx``
"""Returns the event loop this thread runs, or None."""


def current_task() -> asyncio.Task[Any] | None:
    """Return the asyncio task this is called from, or None."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
