"""Daemon threads for blocking functions: a function that hangs blocks neither the event loop nor the exit.

A thread cannot be stopped from outside. After its timeout a function is abandoned: its thread runs on, its result is
not used, and the process may exit before it ends. (A ThreadPoolExecutor would join the thread at exit.)
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import io
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.model.failure import Exited

T = TypeVar("T")

IDLE_SECONDS = 10.0
"""How long a thread waits for more work before it ends."""

Late = Callable[[Any, BaseException | None], None]
"""Called on the event loop with what an abandoned function returned or raised in the end."""

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop, Late | None]


class DaemonThreads:
    """As many threads as there are blocking functions at the same time; idle threads are reused."""

    def __init__(self) -> None:
        """Start without threads."""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[..., T], *args: object, late: Late | None = None) -> T:
        """Run the function in a thread and return its result.

        If the caller is cancelled, the thread runs on, and ``late`` is called with how it ended.
        """
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        answer: asyncio.Future[T] = loop.create_future()
        self._jobs.put((lambda: context.run(function, *args), answer, loop, late))
        with self._lock:
            spare = self._idle > 0
            self._idle -= spare
        if not spare:
            threading.Thread(target=self._work, name="holdfast-blocking", daemon=True).start()
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():  # the answer and the cancellation came in the same turn
                error = answer.exception()
                _abandon(None if error else answer.result(), error, late)
            raise

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle == 0:
                        continue  # a caller has reserved this thread: its job is about to arrive
                    self._idle -= 1
                    return
            if job is None:
                return
            _perform(*job)
            del job  # a waiting thread must not keep the last result alive
            with self._lock:
                self._idle += 1

    def close(self) -> None:
        """Let idle threads end, and abandon busy ones."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._jobs.put(None)


def _perform(
    call: Callable[[], Any], answer: asyncio.Future[Any], loop: asyncio.AbstractEventLoop, late: Late | None
) -> None:
    result: Any = None
    error: BaseException | None = None
    try:
        result = call()
    except BaseException as raised:  # noqa: BLE001 - it is raised in the caller that waits for the answer
        error = raised
    if isinstance(error, StopIteration):  # a future does not accept it
        error = RuntimeError(f"the function raised {error!r}")
    elif error is not None and not isinstance(error, Exception | Unwind):
        error = Exited(error)  # SystemExit ends the thread, not the process
    with suppress(RuntimeError):  # the loop is closed: no caller waits any more
        loop.call_soon_threadsafe(_answer, answer, _Delivery(result), error, late)


class _Delivery:
    """A result on its way to the loop. A loop that is closed meanwhile never takes it: then it is dropped."""

    def __init__(self, result: object) -> None:
        self._result = result

    def take(self) -> object:
        result, self._result = self._result, None
        return result

    def __del__(self) -> None:
        drop(self._result)


def _answer(answer: asyncio.Future[Any], delivery: _Delivery, error: BaseException | None, late: Late | None) -> None:
    result = delivery.take()
    if answer.done():
        _abandon(result, error, late)
    elif error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def _abandon(result: object, error: BaseException | None, late: Late | None) -> None:
    if late is None:
        drop(result)
    else:
        late(result, error)


def drop(result: object) -> None:
    """Close a result that no caller receives, if it is a coroutine or a file."""
    if inspect.iscoroutine(result) or isinstance(result, io.IOBase):
        result.close()
