"""Pieces: long work that its caller can interrupt between two pieces."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Pieces: TypeAlias = Generator[int, None, T]
"""Yields after each piece how many items it had, and returns the result."""


def finish(work: Pieces[T]) -> T:
    """Do all that is left, without a break."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
