"""Code that catches everything and continues after it was stopped: how the engine notices it and sets it aside.

``except:`` and ``except BaseException:`` also catch the signal that takes a task's code off its worker. Such code must
neither spin nor block anything. An async function is never resumed: whatever it still awaits gets no answer. A thread
cannot be ended from outside. If it still calls ``ctx``, that call never returns, and uses no processor time. Code that
neither awaits anything nor calls ``ctx`` cannot be stopped at all.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import CoroutineType, FrameType
from typing import Any, Generic, NoReturn, TypeVar

from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.runtime.where import current_task
from holdfast.model.failure import is_user_code, named_place
from holdfast.redaction import make_logger

R = TypeVar("R")

FEW_TURNS, MANY_CALLS = 100, 10_000
"""In how many turns of the event loop a branch may make refused calls of ``ctx``, and how many in one turn. Clean-up in
``finally`` blocks makes some calls, and ``gather`` over many steps makes many at once."""

LOOKS_AT_CLEAN_UP = 3
"""How often the engine checks, within UNWIND_WITHIN, whether the code is over."""

UNWIND_WITHIN = 30.0
"""Seconds that code has for its clean-up after it was stopped."""

UNWIND_BY_ITSELF = 3.0
"""Seconds that the code of a discovery replay has to end by itself before it is cancelled."""

STUCK = "holdfast-stuck"
"""The beginning of the names of threads that are blocked in a call for ever."""

_log = make_logger("holdfast")
_kept: list[object] = []


class SetAside(Unwind):
    """Raised to the awaiter of code that does not stop: the engine does not resume that code."""


class Driven(Generic[R]):
    """A coroutine that runs as if it was awaited, until the engine gives it up. After that it is never resumed."""

    __slots__ = ("_is_given_up", "code")

    def __init__(self, code: Coroutine[Any, Any, R], is_given_up: Callable[[], bool]) -> None:
        """``is_given_up`` is called each time before the code is resumed."""
        self.code = code
        self._is_given_up = is_given_up

    def __await__(self) -> Driven[R]:
        """Run it: ``await`` calls this."""
        return self

    def __iter__(self) -> Driven[R]:
        """See ``__await__``."""
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        """Resume it."""
        return self.send(None)

    def send(self, value: object) -> Any:  # noqa: ANN401
        """Resume it with the answer to what it awaits."""
        if self._is_given_up():
            self._leave()
        return self.code.send(value)

    def throw(self, kind: Any, error: Any = None, trace: object = None, /) -> Any:  # noqa: ANN401, ARG002
        """Resume it with an error."""
        if self._is_given_up():
            self._leave()
        return self.code.throw(kind if error is None else error)

    async def run(self) -> R:
        """Run it as the whole of an asyncio task."""
        result: R = await self
        return result

    def close(self) -> None:
        """Close it, because its awaiter is closed. Code that was given up is not closed: it would not end."""
        if not self._is_given_up():
            self.code.close()

    def _leave(self) -> NoReturn:
        keep_forever(self.code)
        raise SetAside

    @property
    def where(self) -> str:
        """The line of the user's code at which it waits; empty if unknown."""
        found = ""
        for frame in _frames(self.code):
            if is_user_code(frame.f_code.co_filename):
                found = named_place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        return found


def _frames(code: object) -> Iterator[Any]:
    while code is not None:
        if isinstance(code, Driven):
            code = code.code
            continue
        frame = getattr(code, "cr_frame", None)
        if frame is None:
            return
        yield frame
        code = getattr(code, "cr_await", None)


def inner_code(awaited: object) -> CoroutineType[Any, Any, Any] | None:
    """Return what a coroutine awaits, if that is another coroutine."""
    while isinstance(awaited, Driven):
        awaited = awaited.code
    return awaited if isinstance(awaited, CoroutineType) else None


def calling_line() -> str:
    """Return the line of the user's code that makes the current call."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return named_place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return ""


async def dead_end(own: asyncio.Task[Any]) -> NoReturn:
    """Never return; end the asyncio task that came here without resuming its code.

    ``own`` is the asyncio task of the attempt, which the engine ends in another way.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    if task is not None and task is not own:
        loop.call_soon(_end_without_code, task)
        await _Never(loop=loop)
    while True:
        await loop.create_future()  # nothing resolves it


class _Never(asyncio.Future[NoReturn]):
    """What an ended asyncio task awaits. A cancel does not wake it: that would be an error in a task that is over."""

    def cancel(self, msg: object = None) -> bool:
        """Report success, and do nothing."""
        del msg
        return True


def _end_without_code(task: asyncio.Task[Any]) -> None:
    """End an asyncio task whose code is never resumed: to its awaiters it looks cancelled.

    The task's own ``cancel`` would only resume the code once more. The ``cancel`` of a plain future ends the task.
    """
    if not task.done():
        keep_forever(task.get_coro())
        asyncio.Future.cancel(task)


def block_thread(what: str) -> NoReturn:
    """Block the thread for ever: its code would only call again. The process can still end."""
    threading.current_thread().name = f"{STUCK}: {what}"
    stuck = sum(1 for thread in threading.enumerate() if thread.name.startswith(STUCK))
    _log.warning(
        "a thread of %s does not end although its task was stopped; it is blocked until the process ends "
        "(threads blocked so far: %d)",
        what,
        stuck,
    )
    while True:
        threading.Event().wait()


def keep_forever(code: object) -> None:
    """Keep a coroutine from ever being destroyed: Python would close it, and its code would catch that too.

    That is also true at the end of the process, when the modules that the code calls are already gone.
    """
    try:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    except AttributeError:  # another Python than CPython
        _kept.append(code)


class Refusals:
    """The refused calls of one branch."""

    __slots__ = ("_calls", "_is_logged", "_is_noted", "_turns")

    def __init__(self) -> None:
        """Start at zero."""
        self._turns = self._calls = 0
        self._is_noted = self._is_logged = False

    def are_too_many(self) -> bool:
        """Count a call; return whether the branch has made too many of them."""
        self._calls += 1
        if not self._is_noted:  # a thread has no turns: each of its calls counts
            self._turns += 1
            self._calls = 1
            if not is_in_thread():
                self._is_noted = True
                asyncio.get_running_loop().call_soon(self._turn)
        return self._turns > FEW_TURNS or self._calls > MANY_CALLS

    def is_first_report(self) -> bool:
        """Return whether this is the first time; the caller then logs it."""
        was_logged, self._is_logged = self._is_logged, True
        return not was_logged

    def _turn(self) -> None:
        self._is_noted = False


def is_in_thread() -> bool:
    """Return whether the caller is blocking code, in a thread without an event loop."""
    return current_task() is None
