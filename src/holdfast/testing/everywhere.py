"""The same scenario again and again, with a crash at every Commit in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.engine.api.holdfast import Holdfast
from holdfast.testing.crashes import CrashDidNotHappen
from holdfast.testing.sandboxes import Sandbox, sandbox

T = TypeVar("T")


class CrashChangedResult(AssertionError):
    """A scenario had another result because a worker died in it."""


@dataclass(frozen=True, slots=True)
class Survived(Generic[T]):
    """The result of a scenario, the same with every crash."""

    result: T
    crashes: int
    """How many runs were crashed."""


async def crash_everywhere(
    hold: Holdfast,
    scenario: Callable[[Sandbox], Awaitable[T]],
    **options: Any,  # noqa: ANN401
) -> Survived[T]:
    """Run ``scenario(sandbox)`` undisturbed, then once for each Commit with a crash before it, and once after it.

    Every run gets its own sandbox, empty and in memory. The scenario has to set up everything outside it again (a fake
    payment service, a list). Return the result if it was always the same. Raise CrashChangedResult, which names the
    crash, as soon as a run has another result or raises. ``options`` are passed to ``sandbox``.
    """
    async with sandbox(hold, **options) as box:
        expected = await scenario(box)
        commits = box.commits
    for number in range(1, commits + 1):
        for durable in (False, True):
            await _crash_at(hold, scenario, expected, number, durable=durable, options=options)
    return Survived(expected, 2 * commits)


async def _crash_at(
    hold: Holdfast,
    scenario: Callable[[Sandbox], Awaitable[T]],
    expected: T,
    number: int,
    *,
    durable: bool,
    options: dict[str, Any],
) -> None:
    where = f"a crash {'after' if durable else 'before'} commit {number}"
    try:
        async with sandbox(hold, **options) as box:
            box.crash_at_commit(number, durable=durable)
            result = await scenario(box)
    except CrashDidNotHappen:
        raise
    except Exception as error:
        raise CrashChangedResult(f"with {where} the scenario raised {error!r}") from error
    if result != expected:
        raise CrashChangedResult(f"with {where} the scenario gave {result!r}, and without it {expected!r}")
