"""LoopThread: an event loop in its own thread, for blocking code.

It keeps one async context manager open, and runs coroutines that other threads wait for. ``stop`` first cancels the
calls that are still under way, then leaves the context manager, then closes the loop and ends the thread. So nothing
is left behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, TypeVar

from holdfast.model.errors import HoldfastError, StoreClosed
from holdfast.process_fork import Owner

T = TypeVar("T")

_SLICE = 0.5
"""Seconds of one wait: on Windows, a thread notices Ctrl-C only between two waits."""


class LoopThread:
    """A running loop. Any number of threads may use it at once."""

    def __init__(self, inside: AbstractAsyncContextManager[Any]) -> None:
        """``inside`` is open on the loop, from ``start`` to ``stop``."""
        self._inside = inside
        self._owner = Owner("hold.sync")
        self._lock = threading.RLock()  # a signal handler may run in the thread that holds it
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop, while it accepts calls."""
        self._main: asyncio.Task[None] | None = None
        self._stopping = False
        self._calls: dict[Future[Any], asyncio.Task[Any]] = {}
        self._opened: Future[None] = Future()
        self._error: BaseException | None = None
        """The error that closing raised."""
        # A daemon thread: it does not delay the exit of a program that has not stopped it.
        self._thread = threading.Thread(target=self._run, name="holdfast-sync", daemon=True)

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child of the process in which the thread runs."""
        return self._owner.is_other

    # From other threads

    def start(self) -> None:
        """Return when the context manager is open, or raise its error."""
        self._thread.start()
        try:
            _outcome(self._opened)
        except BaseException:
            self.stop()
            raise

    def wait(self, call: Coroutine[Any, Any, T], *, on_interrupt: Callable[[], object] | None = None) -> T:
        """Run a coroutine on the loop; return its result or raise its error.

        If this thread is interrupted meanwhile (Ctrl-C), the coroutine is cancelled, or ``on_interrupt`` is called on
        the loop to make it end. When it has ended, the interrupt is raised.
        """
        answer = self._send(call, refuse_event_loop)
        try:
            return _outcome(answer)
        except CancelledError:
            if self._loop is None:
                raise StoreClosed("`with hold.sync` ended in another thread while this call was waiting") from None
            raise
        except BaseException:
            if not answer.done():
                with suppress(StoreClosed):
                    self._soon(on_interrupt or (lambda: self._cancel(answer)))
                _until_done(answer)
            raise

    def send(self, call: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine on the loop, and do not wait for it."""
        self._send(call, lambda: None)

    def post(self, function: Callable[[], object]) -> None:
        """Make the loop call a function soon. Safe in signal handlers."""
        self._soon(function)

    def stop(self) -> None:
        """Return when everything is closed; raise the error of closing. In a forked child, do nothing."""
        if self._owner.is_other:
            return
        with self._lock:
            self._stopping = True
            loop, self._loop = self._loop, None
            if loop is not None and self._main is not None:
                loop.call_soon_threadsafe(self._main.cancel)
        while self._thread.is_alive():
            self._thread.join(_SLICE)
        if self._error is not None:
            raise self._error

    def _send(self, call: Coroutine[Any, Any, T], check: Callable[[], None]) -> Future[T]:
        answer: Future[T] = Future()
        try:
            check()
            self._soon(lambda: self._begin(call, answer))
        except BaseException:
            call.close()
            raise
        return answer

    def _soon(self, function: Callable[[], object]) -> None:
        self._owner.check()  # before the lock: in a forked child, a thread that does not exist here may hold it
        # Under the lock, so that every accepted call comes before the cancellation that ends the loop.
        with self._lock:
            if self._loop is None:
                raise StoreClosed("`with hold.sync` has ended; use its objects inside the block, or open it again")
            self._loop.call_soon_threadsafe(function)

    # On the loop's own thread

    def _run(self) -> None:
        ended: BaseException | None = None
        try:
            asyncio.run(self._live())
        except asyncio.CancelledError as stopped:
            ended = None if self._opened.done() else stopped
        except BaseException as error:  # noqa: BLE001 - it is raised by ``start`` or ``stop``
            ended = error
        if self._opened.done():
            self._error = ended
        else:
            self._opened.set_exception(ended or StoreClosed("stopped before it was open"))

    async def _live(self) -> None:
        with self._lock:
            if self._stopping:
                return
            self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        try:
            async with self._inside:
                self._opened.set_result(None)
                try:
                    await asyncio.get_running_loop().create_future()  # until ``stop`` cancels it
                finally:
                    self._take_no_more()
                    await self._end_calls()
        finally:
            self._take_no_more()

    def _take_no_more(self) -> None:
        with self._lock:
            self._loop = None

    async def _end_calls(self) -> None:
        await asyncio.sleep(0)  # the last accepted calls start now
        while self._calls:
            for call in self._calls.values():
                call.cancel()
            await asyncio.wait(self._calls.values())
            await asyncio.sleep(0)  # their answers are set now

    def _begin(self, call: Coroutine[Any, Any, T], answer: Future[T]) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._calls[answer] = task
        task.add_done_callback(lambda task: self._answer(task, answer))

    def _answer(self, task: asyncio.Task[T], answer: Future[T]) -> None:
        del self._calls[answer]
        if task.cancelled():
            answer.cancel()
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())

    def _cancel(self, answer: Future[Any]) -> None:
        if (call := self._calls.get(answer)) is not None:
            call.cancel()


def refuse_event_loop() -> None:
    """Raise on a thread that runs an event loop: the call would block the loop and everything on it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise HoldfastError(
        "hold.sync blocks, and this thread runs an event loop; use `async with hold:` and `await hold.submit(...)` "
        "here, or move the blocking code into a thread with `await asyncio.to_thread(...)`"
    )


def _outcome(answer: Future[T]) -> T:
    _until_done(answer)
    return answer.result()


def _until_done(answer: Future[Any]) -> None:
    while not answer.done():
        futures.wait((answer,), timeout=_SLICE)
