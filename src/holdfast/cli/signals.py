"""Signals that ask a process to stop: one reaction for the first, another for the second."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

from holdfast.cli.exits import SIGNALLED
from holdfast.process_fork import watch

_STOPPING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""SIGHUP: the terminal was closed. SIGBREAK is Ctrl-Break, which only Windows has."""


class StopSignals:
    """The first signal calls the first reaction, the second the second, on the running loop.

    Once they are used up, and after the block, a signal does what it did before: it ends the process.
    """

    def __init__(self, *reactions: Callable[[signal.Signals], None]) -> None:
        """Handle signals within ``with``."""
        self._reactions = deque(reactions)
        self._before: dict[signal.Signals, Any] = {}
        self._loop: asyncio.AbstractEventLoop

    def __enter__(self) -> None:
        """Handle signals from now on."""
        self._loop = asyncio.get_running_loop()
        watch(self)
        numbers = [signal.Signals[name] for name in _STOPPING if name in signal.Signals.__members__]
        handlers = {number: signal.getsignal(number) for number in numbers}
        hung_up = getattr(signal, "SIGHUP", None)
        # A process that was started with nohup is meant to outlive the terminal.
        self._before = {
            number: handler
            for number, handler in handlers.items()
            if number != hung_up or handler is not signal.SIG_IGN
        }
        for number in self._before:
            try:
                self._loop.add_signal_handler(number, self._react, number)
            except NotImplementedError:  # the event loops of Windows
                signal.signal(number, self._handle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the handlers that were there before."""
        while self._before:
            number, handler = self._before.popitem()
            with suppress(NotImplementedError):
                self._loop.remove_signal_handler(number)
            signal.signal(number, handler)

    def release_in_child(self) -> None:
        """Let a signal end a forked child, as it would have without us.

        The loop gets signals through a pipe that the child shares: a signal to the child would stop the parent. (Python
        3.12 and later separate the pipe, and the child then ignores signals.)
        """
        if self._before:
            signal.set_wakeup_fd(-1)
            while self._before:
                signal.signal(*self._before.popitem())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._loop.call_soon_threadsafe(self._react, signal.Signals(number))

    def _react(self, number: signal.Signals) -> None:
        if self._reactions:
            self._reactions.popleft()(number)
        if not self._reactions:
            self.__exit__(None, None, None)


@contextmanager
def exiting_when_killed() -> Iterator[None]:
    """Make SIGTERM and SIGHUP an ordinary exit, which cleans up; for code that runs without an event loop."""
    numbers = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if name in signal.Signals.__members__]
    before = {number: signal.signal(number, _exit) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(SIGNALLED + number)
