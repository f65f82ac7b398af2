"""Calls from the thread of a blocking function: they run on the event loop while the thread waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.model.errors import HoldfastError, StoreClosed, StoreForked
from holdfast.process_fork import Owner

R = TypeVar("R")

_LOOK_EVERY = 1.0
"""Seconds between two checks whether the loop is still open."""


class Crossing:
    """Calls from threads to one event loop."""

    __slots__ = ("_loop", "_owner", "_thread", "_what")

    def __init__(self, loop: asyncio.AbstractEventLoop, what: str) -> None:
        """Create it on the loop's own thread; ``what`` is the name of the blocking object, for messages."""
        self._loop = loop
        self._owner = Owner(what)
        self._thread = threading.get_ident()
        self._what = what

    def wait(self, call: Coroutine[Any, Any, R]) -> R:
        """Run the call on the loop; return its result or raise its error. Raise Unwind if it can never be answered."""
        try:
            self._owner.check()
        except StoreForked:
            call.close()
            raise
        if threading.get_ident() == self._thread:
            call.close()
            raise HoldfastError(
                f"a blocking {self._what} was used on the event loop's own thread, which would wait for itself for "
                f"ever; make the function async, or use {self._what} in the thread that got it"
            )
        try:
            answer = asyncio.run_coroutine_threadsafe(call, self._loop)
            while not concurrent.futures.wait([answer], timeout=_LOOK_EVERY).done:
                if self._loop.is_closed():
                    raise Unwind  # the process is about to exit
            return answer.result()
        except concurrent.futures.CancelledError:
            raise Unwind from None
        except RuntimeError as error:
            if not self._loop.is_closed():
                raise
            raise Unwind from error
        finally:
            call.close()  # if it never started


class LateCrossing(Crossing):
    """Calls from threads that may come after the function has ended: then a loop that is gone unwinds nothing."""

    __slots__ = ()

    def wait(self, call: Coroutine[Any, Any, R]) -> R:
        """See Crossing. Raises StoreClosed if the call can never be answered."""
        try:
            return super().wait(call)
        except Unwind:
            raise StoreClosed(f"the {self._what} was used after its Holdfast was closed; use it before that") from None

    def send(self, call: Coroutine[Any, Any, object]) -> None:
        """Run the call on the loop, and do not wait for it."""
        try:
            self._owner.check()
            asyncio.run_coroutine_threadsafe(call, self._loop)
        except BaseException:
            call.close()
            raise
