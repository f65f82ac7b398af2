"""Pulse: whether anything happens in a sandbox, and the time since then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pulse:
    """Beats whenever something happens: a claim, a step, a commit, a hint. A poll that finds nothing does not count."""

    def __init__(self) -> None:
        """Start now."""
        self.beats = 0
        self._asking = 0
        self._last = time.monotonic()

    def beat(self) -> None:
        """Something happened."""
        self.beats += 1
        self._last = time.monotonic()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Mark, for a block, that a worker waits for the store's answer."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    @property
    def is_asking(self) -> bool:
        """Whether a worker waits for the store's answer: a disk may be slow, and that does not count as silence."""
        return self._asking > 0

    @property
    def silence(self) -> float:
        """Real seconds since the last beat."""
        return time.monotonic() - self._last
