"""Script: which of the answers written beforehand is next, decided by the conversation and not by a counter."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

LineT = TypeVar("LineT")


class Script(Generic[LineT]):
    """Lines of two kinds: answers, which move a conversation on, and failures, after which it is where it was.

    The n-th answer belongs to turn n, counted from 0. Failures that stand before it are given first, each of them once
    to whoever asks: that alone is remembered, and only here.
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
        """How many there are."""
        return len(self._turns) - 1

    def line(self, turn: int, asked_by: Hashable) -> LineT | None:
        """Return what is next at ``turn``; None if the script is over. ``asked_by`` is the same for every retry."""
        lines = self._turns[turn] if turn <= self.answers else []
        with self._lock:
            place = self._failed[turn, asked_by]
            if place == len(lines):
                return None
            if self._is_failure(lines[place]):
                self._failed[turn, asked_by] += 1
            return lines[place]
