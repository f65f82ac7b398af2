"""When a task can be taken off its worker: every branch of its code is parked on a durable wait.

This is checked from outside. The check starts at the task's own asyncio task and follows what it awaits, until each
path ends at a parked wait. It can follow ``await task``, ``gather``, ``TaskGroup`` and ``asyncio.wait``. Anything else
(an asyncio timer, a socket, a lock) might continue by itself: then nothing is proven, and the task stays.
"""

from __future__ import annotations

import asyncio
import asyncio.taskgroups
import asyncio.tasks
from collections.abc import Callable, Collection, Coroutine, Iterable
from types import CodeType, CoroutineType
from typing import Any, ParamSpec, TypeVar

from holdfast.engine.attempt.stuck_code import inner_code

P = ParamSpec("P")
R = TypeVar("R")

_TIMED: frozenset[CodeType] = frozenset({asyncio.wait_for.__code__})
"""Code that awaits something with a timer of its own."""


_BARE_WAITS: set[CodeType] = set()


def bare_wait(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Mark a function that only waits for a child: no other branch needs what it does after the wait."""
    _BARE_WAITS.add(function.__code__)
    return function


def is_quiescent(
    root: asyncio.Task[Any], branches: Iterable[asyncio.Task[Any]], parked: Collection[asyncio.Task[Any]]
) -> bool:
    """Return whether the root, what it awaits, and every known branch are all parked or done."""
    ahead: list[asyncio.Future[Any]] = [root, *branches]
    seen: set[asyncio.Future[Any]] = set()
    timed = _with_timeout(root.get_loop())
    while ahead:
        future = ahead.pop()
        if future in seen or future.done():
            continue
        seen.add(future)
        awaited = None if future in timed else _awaited_by(future, parked)
        if awaited is None:
            return False
        ahead.extend(awaited)
    return True


def is_joined(root: asyncio.Task[Any], parked: Collection[asyncio.Task[Any]]) -> bool:
    """Return whether the root continues only when all parked branches are done: it gathers them and nothing else.

    Then waking the task for each of them would only cause as many replays.
    """
    waiter = getattr(root, "_fut_waiter", None)
    members = _gathered(waiter) or _grouped(_innermost(root))
    if not members:
        return False
    if not set(parked) <= set(members):
        return False  # a branch that is not gathered can continue by itself
    return all(member.done() or (member in parked and _is_bare_wait(member)) for member in members)


def _is_bare_wait(branch: asyncio.Future[Any]) -> bool:
    """Return whether the branch only waits for a child, and does nothing after it that other branches may need."""
    coroutine = branch.get_coro() if isinstance(branch, asyncio.Task) else None
    return getattr(coroutine, "cr_code", None) in _BARE_WAITS


def _awaited_by(future: asyncio.Future[Any], parked: Collection[asyncio.Task[Any]]) -> list[asyncio.Future[Any]] | None:
    """Return what must be over before this continues; None if that is unknown."""
    if not isinstance(future, asyncio.Task):
        return None
    inner = _innermost(future)
    if inner is None:
        return None
    if future in parked:
        return []
    waiter = getattr(future, "_fut_waiter", None)
    if waiter is None or waiter.done():
        return None  # it continues in the next turn of the loop
    awaited: list[asyncio.Future[Any]] | None = (
        [waiter] if isinstance(waiter, asyncio.Task) else _gathered(waiter) or _grouped(inner) or _waited(inner)
    )
    if awaited and all(one.done() for one in awaited):
        return None  # it continues as soon as the loop has run the callbacks of those
    return awaited


def _innermost(task: asyncio.Task[Any]) -> CoroutineType[Any, Any, Any] | None:
    """Return the innermost coroutine that a task awaits; None if one on the way has a timer."""
    coroutine = task.get_coro()
    if not isinstance(coroutine, CoroutineType):
        return None
    while (awaited := inner_code(coroutine.cr_await)) is not None:
        coroutine = awaited
        if coroutine.cr_code in _TIMED:
            return None
    return coroutine


def _with_timeout(loop: asyncio.AbstractEventLoop) -> set[object]:
    """Return the tasks inside an ``asyncio.timeout`` that has a time set: only the loop's timers show that."""
    timers = getattr(loop, "_scheduled", ())
    owners = (getattr(getattr(timer, "_callback", None), "__self__", None) for timer in timers)
    return {getattr(owner, "_task", None) for owner in owners if isinstance(owner, asyncio.Timeout)}


def _gathered(waiter: object) -> list[asyncio.Future[Any]] | None:
    children = getattr(waiter, "_children", None)
    return list(children) if isinstance(children, list) else None


def _grouped(coroutine: CoroutineType[Any, Any, Any] | None) -> list[asyncio.Future[Any]] | None:
    """Return the tasks of the TaskGroup whose end the coroutine awaits."""
    if coroutine is None or coroutine.cr_code.co_filename != asyncio.taskgroups.__file__ or coroutine.cr_frame is None:
        return None
    tasks = getattr(coroutine.cr_frame.f_locals.get("self"), "_tasks", None)
    return list(tasks) if isinstance(tasks, set) else None


def _waited(coroutine: CoroutineType[Any, Any, Any]) -> list[asyncio.Future[Any]] | None:
    """Return the futures of an asyncio.wait without a timeout; None if it needs only one of them, which is done."""
    if coroutine.cr_code.co_name != "_wait" or coroutine.cr_code.co_filename != asyncio.tasks.__file__:
        return None
    local = coroutine.cr_frame.f_locals if coroutine.cr_frame is not None else {}
    if local.get("timeout", 0) is not None or "fs" not in local:
        return None
    futures: list[asyncio.Future[Any]] = list(local["fs"])
    is_over = local["return_when"] != asyncio.ALL_COMPLETED and any(future.done() for future in futures)
    return None if is_over else futures
