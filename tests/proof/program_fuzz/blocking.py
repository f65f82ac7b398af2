"""The same interpreter in blocking tasks: a context whose calls block, behind one that is awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast import SyncContext

R = TypeVar("R")


def drive(code: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
    """Run a coroutine that awaits nothing but calls of Awaited: it never has to wait for a loop."""
    try:
        code.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("a blocking program awaited something")


class Awaited:
    """A SyncContext whose calls are awaited, though they block."""

    def __init__(self, ctx: SyncContext) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._ctx, name)
        return _awaited(found) if name in _WAITING else found

    def gathered(self, branches: Sequence[Coroutine[Any, Any, R]]) -> list[R | BaseException]:
        """Run each in a thread of its own; return how they ended, as ``asyncio.gather`` does."""
        try:
            with ThreadPoolExecutor(len(branches) or 1) as pool:
                futures = [pool.submit(self._ctx.branch(drive), branch) for branch in branches]
            return [future.exception() or future.result() for future in futures]
        finally:
            for branch in branches:
                branch.close()  # one that never began

    async def submit(self, *args: Any, **options: Any) -> AwaitedChild:  # noqa: ANN401
        return AwaitedChild(self._ctx.submit(*args, **options))


class AwaitedChild:
    """A child of a blocking task."""

    def __init__(self, child: Any) -> None:  # noqa: ANN401
        self.result = _awaited(child.result)


_WAITING = frozenset({"step", "transaction", "approval", "ask", "sleep", "wait_event", "charge", "patch"})


def _awaited(call: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def awaited(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        return call(*args, **options)

    return awaited
