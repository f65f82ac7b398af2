"""From the thread of a blocking function to the loop and back: the call is made there while the thread waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.model.errors import HoldfastError, StoreForked
from holdfast.process_fork import Owner

R = TypeVar("R")

_LOOK_EVERY = 1.0
"""Seconds between two looks whether the loop is still there."""


class Crossing:
    """The way from threads to one loop."""

    __slots__ = ("_loop", "_owner", "_thread", "_what")

    def __init__(self, loop: asyncio.AbstractEventLoop, what: str) -> None:
        """Made on the loop's own thread; ``what`` is the word for what blocks, in messages."""
        self._loop = loop
        self._owner = Owner(what)
        self._thread = threading.get_ident()
        self._what = what

    def wait(self, call: Coroutine[Any, Any, R]) -> R:
        """Return, or raise, what the call does; Unwind if nobody will ever answer."""
        try:
            self._owner.check()
        except StoreForked:
            call.close()
            raise
        if threading.get_ident() == self._thread:
            call.close()
            raise HoldfastError(
                f"a blocking {self._what} was used on the event loop's own thread, which would wait for itself for "
                f"ever; make the function async, or use {self._what} in the thread it was given to"
            )
        try:
            answer = asyncio.run_coroutine_threadsafe(call, self._loop)
            while not concurrent.futures.wait([answer], timeout=_LOOK_EVERY).done:
                if self._loop.is_closed():
                    raise Unwind  # the process is ending around this thread
            return answer.result()
        except concurrent.futures.CancelledError:
            raise Unwind from None
        except RuntimeError as error:
            if not self._loop.is_closed():
                raise
            raise Unwind from error
        finally:
            call.close()  # one that never began
