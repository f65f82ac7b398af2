"""Health: what is known about a connection without asking the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Health:
    """One connection. Its transport fills it in."""

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no answer can come any more."""
    has_exited: Callable[[], bool] = lambda: False
    """Whether the process that was started is gone. A child of it may still answer: only the end of its output is
    proof."""
