"""The blocking functions of a task's code: each runs in a thread, with a ``ctx`` whose calls block that thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Protocol

from holdfast.engine.api.sync.context import SyncContext
from holdfast.engine.attempt.code_run import CodeRun
from holdfast.engine.attempt.context import Context
from holdfast.engine.attempt.held_task import HeldTask


class BlockingOwner(HeldTask, Protocol):
    """The attempt whose code has blocking functions."""

    @property
    def code_run(self) -> CodeRun:
        """Its code."""

    @property
    def is_stopped(self) -> bool:
        """Whether its code must stop."""


class BlockingCalls:
    """The blocking functions of one attempt that are under way."""

    __slots__ = ("_attempt", "_calls", "threads")

    def __init__(self, attempt: BlockingOwner) -> None:
        """Start without any."""
        self._attempt = attempt
        self._calls: dict[asyncio.Task[Any], set[asyncio.Task[Any]]] = {}
        self.threads: list[int] = []
        """One entry for each thread that a blocking function started: the id of the set of that function's calls."""

    async def run(self, function: Callable[..., Any], context: Context, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        """Run a blocking function in a thread."""
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        blocking = SyncContext(context, self, asyncio.get_running_loop())
        self._calls[branch] = blocking._calls  # noqa: SLF001 - the engine's own side of it
        try:
            return await self._attempt.services.threads.run(lambda: function(blocking, *args, **kwargs))
        finally:
            del self._calls[branch]
            blocking._abandon()  # noqa: SLF001

    def __bool__(self) -> bool:
        """Return whether any is under way."""
        return bool(self._calls)

    @property
    def by_branch(self) -> Mapping[asyncio.Task[Any], set[asyncio.Task[Any]]]:
        """The branches that run a blocking function, and the calls of ``ctx`` that each function waits for."""
        return self._calls

    @property
    def is_stopped(self) -> bool:
        """Whether these functions must stop: no call of ``ctx`` does anything more."""
        return self._attempt.is_stopped

    def is_refused_too_often(self) -> bool:
        """Count a call of ``ctx`` that is refused; return whether there were too many of them."""
        return self._attempt.code_run.is_refused_too_often()

    def has_threads(self, calls: set[asyncio.Task[Any]]) -> bool:
        """Return whether the blocking function that makes these calls has running threads of its own."""
        return id(calls) in self.threads

    def cancel(self) -> None:
        """Interrupt the calls that these functions wait for."""
        for call in chain.from_iterable(self._calls.values()):
            call.cancel()
