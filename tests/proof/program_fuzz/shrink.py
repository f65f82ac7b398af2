"""Making a failing case small: whatever can be left out while it still fails is left out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.proof.program_fuzz.grammar import Case, unwrapped, without

MOST_RUNS = 150


async def shrink(case: Case, fails: Callable[[Case], Awaitable[bool]], *, most: int = MOST_RUNS) -> Case:
    """Return the smallest case that was found to fail still, after so many runs at most."""
    runs = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            if runs >= most:
                return case
            runs += 1
            if await fails(candidate):
                case, smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with one thing less, the largest things first."""
    nodes = [node for node in case.body.walk() if node is not case.body]
    for node in sorted(nodes, key=lambda node: -sum(1 for _ in node.walk())):
        yield replace(case, body=without(case.body, node.id))
    for number in range(len(case.faults)):
        yield replace(case, faults=case.faults[:number] + case.faults[number + 1 :])
    for name, plain in _PLAIN.items():
        if getattr(case, name) != plain:
            yield replace(case, **{name: plain})
    for node in nodes:
        if node.parts and node.op not in {"child", "machine"}:
            yield replace(case, body=unwrapped(case.body, node.id))
    for number in range(len(case.revive)):
        yield replace(case, revive=case.revive[:number] + case.revive[number + 1 :])
    if case.rejections > 1:
        yield replace(case, rejections=1)


_PLAIN: dict[str, Any] = {
    "lost": 0.0,
    "read_only": 0,
    "full": 0,
    "away": 0,
    "prune_after": None,
    "pause_after": None,
    "concurrency": None,
    "replaced": 0,
    "deadline": None,
    "cancel_after": None,
    "fork_after": None,
    "rejections": 0,
    "blocking": False,
}
