"""SyncHandle: one task, seen from outside, for blocking code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar, cast

from holdfast.engine.api.handle import Handle
from holdfast.model.errors import StoreError
from holdfast.model.records import Event
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

R = TypeVar("R")
T = TypeVar("T")


class OtherThread(Protocol):
    """The thread of an event loop, on which asynchronous calls run."""

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call there; return its result or raise its error."""

    def send(self, call: Coroutine[Any, Any, object]) -> None:
        """Run a call there, and do not wait for it."""


class SyncHandle(Generic[R]):
    """One task, seen from outside, for blocking code."""

    __slots__ = ("_handle", "_thread")

    def __init__(self, thread: OtherThread, handle: Handle[R]) -> None:
        """Only SyncHoldfast and SyncTransaction create these."""
        self._thread = thread
        self._handle = handle

    def __repr__(self) -> str:
        """Return the id of the task."""
        return repr(self._handle)

    @property
    def id(self) -> str:
        """The id of the task."""
        return self._handle.id

    @property
    def handle(self) -> Handle[R]:
        """The asynchronous handle underneath, for ``h.wait``: ``h.wait(machine.state_of(ticket.handle))``."""
        return self._handle

    def task(self) -> Task:
        """See Handle."""
        return self._thread.wait(self._handle.task())

    def result(self, timeout: float | timedelta | None = None) -> R:
        """See Handle."""
        return self._thread.wait(self._handle.result(timeout))

    def cancel(self, reason: str = "cancelled", *, actor: str = "user") -> TaskState:
        """See Handle."""
        return self._thread.wait(self._handle.cancel(reason, actor=actor))

    def events(self, *, after: int = 0) -> Generator[Event, None, None]:
        """See Handle. It blocks between two events; ``close()`` it to stop early."""
        stream = cast("AsyncGenerator[Event, None]", self._handle.events(after=after))

        async def following() -> Event | None:
            return await anext(stream, None)

        async def close() -> None:
            await stream.aclose()

        try:
            while (event := self._thread.wait(following())) is not None:
                yield event
        finally:
            # Not waited for: the garbage collector may close it, on any thread.
            with suppress(StoreError):  # the store is closed, or belongs to the parent process
                self._thread.send(close())
