"""Script: chooses the next of the prepared answers by the conversation, not by a counter."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

LineT = TypeVar("LineT")


class Script(Generic[LineT]):
    """Lines of two kinds: answers, which advance a conversation, and failures, which do not.

    The n-th answer belongs to turn n, counted from 0. The failures before it come first, each once per asker. Only that
    is remembered, and only in this object.
    """

    def __init__(self, lines: Iterable[LineT], is_failure: Callable[[LineT], bool]) -> None:
        self._is_failure = is_failure
        self._turns: list[list[LineT]] = [[]]
        for line in lines:
            self._turns[-1].append(line)
            if not is_failure(line):
                self._turns.append([])
        self._failed: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    @property
    def answers(self) -> int:
        """The number of answers."""
        return len(self._turns) - 1

    def line(self, turn: int, asked_by: Hashable) -> LineT | None:
        """Return the next line at ``turn``; None if the script is over. ``asked_by`` is the same for every retry."""
        lines = self._turns[turn] if turn <= self.answers else []
        with self._lock:
            place = self._failed[turn, asked_by]
            if place == len(lines):
                return None
            if self._is_failure(lines[place]):
                self._failed[turn, asked_by] += 1
            return lines[place]
