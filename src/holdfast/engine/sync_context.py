"""SyncContext: ctx for blocking functions. Each call is made on the event loop while the function's thread waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import uuid
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from holdfast.engine.definition import Bound, TaskDefinition
from holdfast.engine.signals import Unwind
from holdfast.model.errors import HoldfastError
from holdfast.model.retry import Retry
from holdfast.model.task import JsonValue, Task

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt
    from holdfast.engine.context import Child, Context

R = TypeVar("R")

_LOOK_EVERY = 1.0
"""Seconds between two looks whether the loop is still there."""


class SyncContext:
    """The task as its own blocking code sees it: the same calls as Context, which return when they are done."""

    __slots__ = ("_attempt", "_context", "_loop", "_loop_thread")

    def __init__(self, context: Context, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
        """Made by the engine, on the loop's thread."""
        self._context = context
        self._attempt = attempt
        self._loop = loop
        self._loop_thread = threading.get_ident()

    @property
    def task_id(self) -> str:
        """See Context."""
        return self._context.task_id

    @property
    def task(self) -> Task:
        """See Context."""
        return self._context.task

    @property
    def attempt(self) -> int:
        """See Context."""
        return self._context.attempt

    @property
    def feedback(self) -> str | None:
        """See Context."""
        return self._context.feedback

    @property
    def deadline(self) -> datetime | None:
        """See Context."""
        return self._context.deadline

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, R]],
        *args: Any,  # noqa: ANN401
        key: str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        returns: Any = None,  # noqa: ANN401
    ) -> R: ...

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., R],
        *args: Any,  # noqa: ANN401
        key: str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        returns: Any = None,  # noqa: ANN401
    ) -> R: ...

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        returns: Any = None,
    ) -> Any:
        """See Context."""
        return self._wait(
            self._context.step(name, function, *args, key=key, retry=retry, timeout=timeout, returns=returns)
        )

    def sleep(self, duration: float | timedelta, *, key: str | None = None) -> None:
        """See Context."""
        self._wait(self._context.sleep(duration, key=key))

    def wait_event(
        self,
        channel: str,
        *,
        timeout: float | timedelta | None = None,
        earlier: bool = False,
        key: str | None = None,
    ) -> JsonValue:
        """See Context."""
        return self._wait(self._context.wait_event(channel, timeout=timeout, earlier=earlier, key=key))

    def submit(
        self,
        task: TaskDefinition[..., R] | Bound[R] | str,
        *args: Any,  # noqa: ANN401
        key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        deadline: float | timedelta | datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> SyncChild[R]:
        """See Context."""
        child = self._wait(
            self._context.submit(task, *args, key=key, queue=queue, priority=priority, deadline=deadline, delay=delay)
        )
        return SyncChild(self, child)

    def progress(self, step: int, total: int | None = None, message: str = "", *, key: str | None = None) -> None:
        """See Context."""
        self._wait(self._context.progress(step, total, message, key=key))

    def now(self, *, key: str | None = None) -> datetime:
        """See Context."""
        return self._context.now(key=key)

    def random(self, *, key: str | None = None) -> float:
        """See Context."""
        return self._context.random(key=key)

    def uuid(self, *, key: str | None = None) -> uuid.UUID:
        """See Context."""
        return self._context.uuid(key=key)

    def _wait(self, call: Coroutine[Any, Any, R]) -> R:
        if threading.get_ident() == self._loop_thread:
            call.close()
            raise HoldfastError(
                "a blocking ctx was used on the event loop's own thread, which would wait for itself for ever; "
                "make the function async, or call ctx from the task's own thread"
            )
        counted = self._counted(call)
        try:
            answer = asyncio.run_coroutine_threadsafe(counted, self._loop)
            while not concurrent.futures.wait([answer], timeout=_LOOK_EVERY).done:
                if self._loop.is_closed():
                    raise Unwind  # the process is ending around this thread, and nobody will answer
            return answer.result()
        except concurrent.futures.CancelledError:
            raise Unwind from None
        except RuntimeError as error:
            if not self._loop.is_closed():
                raise
            raise Unwind from error
        finally:
            counted.close()  # whatever never began
            call.close()

    async def _counted(self, call: Coroutine[Any, Any, R]) -> R:
        """Run the call where the attempt can see and interrupt it."""
        task, calls = asyncio.current_task(), self._attempt.sync_calls
        if task is None or calls is None:
            call.close()
            raise Unwind  # abandoned: whatever this thread still does is lost
        calls.add(task)
        try:
            return await call
        finally:
            calls.discard(task)


class SyncChild(Generic[R]):
    """A child task, as its blocking parent sees it."""

    __slots__ = ("_child", "_context", "id")

    def __init__(self, context: SyncContext, child: Child[R]) -> None:
        """Made by ``ctx.submit``."""
        self.id = child.id
        self._context = context
        self._child = child

    def result(self) -> R:
        """See Child."""
        return self._context._wait(self._child.result())  # noqa: SLF001 - a part of the same object
