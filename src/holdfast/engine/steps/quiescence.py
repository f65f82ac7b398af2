"""When a task can be taken off its worker: every branch of its code is parked on a durable wait.

Looked at from the outside: the task's own asyncio task, and whatever it awaits in turn, are followed until each path
ends at a parked wait. ``await task``, ``gather``, ``TaskGroup`` and ``asyncio.wait`` can be followed. Anything else (a
timer of asyncio's, a socket, a lock) might go on by itself: then nothing is proven, and the task keeps its slot.
"""

from __future__ import annotations

import asyncio
import asyncio.taskgroups
import asyncio.tasks
from collections.abc import Callable, Collection, Coroutine, Iterable
from types import CodeType, CoroutineType
from typing import Any, ParamSpec, TypeVar

from holdfast.engine.attempt.defiance import inner_code

P = ParamSpec("P")
R = TypeVar("R")

_TIMED: frozenset[CodeType] = frozenset({asyncio.wait_for.__code__})
"""Code that has a timer of its own around what it awaits."""


_BARE_WAITS: set[CodeType] = set()


def bare_wait(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Mark a function that does nothing but wait for a child: no branch needs what it does afterwards."""
    _BARE_WAITS.add(function.__code__)
    return function


def is_quiescent(
    root: asyncio.Task[Any], branches: Iterable[asyncio.Task[Any]], parked: Collection[asyncio.Task[Any]]
) -> bool:
    """Say whether the root, what it awaits, and every known branch are all parked or done."""
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
    """Say whether the root goes on only when all parked branches are through: it gathers them and nothing else.

    Then waking it for each of them would only replay it as many times.
    """
    waiter = getattr(root, "_fut_waiter", None)
    members = _gathered(waiter) or _grouped(_innermost(root))
    if not members:
        return False
    if not set(parked) <= set(members):
        return False  # a branch beside the gathered ones has its own way to go on
    return all(member.done() or (member in parked and _is_bare_wait(member)) for member in members)


def _is_bare_wait(branch: asyncio.Future[Any]) -> bool:
    """Say whether the branch is nothing but a wait for a child: it does nothing afterwards that others may need."""
    coroutine = branch.get_coro() if isinstance(branch, asyncio.Task) else None
    return getattr(coroutine, "cr_code", None) in _BARE_WAITS


def _awaited_by(future: asyncio.Future[Any], parked: Collection[asyncio.Task[Any]]) -> list[asyncio.Future[Any]] | None:
    """Return what must be over before this goes on; None if that cannot be told."""
    if not isinstance(future, asyncio.Task):
        return None
    inner = _innermost(future)
    if inner is None:
        return None
    if future in parked:
        return []
    waiter = getattr(future, "_fut_waiter", None)
    if waiter is None or waiter.done():
        return None  # it goes on at the next turn of the loop
    awaited: list[asyncio.Future[Any]] | None = (
        [waiter] if isinstance(waiter, asyncio.Task) else _gathered(waiter) or _grouped(inner) or _waited(inner)
    )
    if awaited and all(one.done() for one in awaited):
        return None  # and so does this, once it is told
    return awaited


def _innermost(task: asyncio.Task[Any]) -> CoroutineType[Any, Any, Any] | None:
    """Follow a task's coroutine to the one that really waits; None if one on the way has a timer."""
    coroutine = task.get_coro()
    if not isinstance(coroutine, CoroutineType):
        return None
    while (awaited := inner_code(coroutine.cr_await)) is not None:
        coroutine = awaited
        if coroutine.cr_code in _TIMED:
            return None
    return coroutine


def _with_timeout(loop: asyncio.AbstractEventLoop) -> set[object]:
    """Return the tasks that are inside an ``asyncio.timeout`` which will go off: only the loop's timers tell."""
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
    """Return the futures of an asyncio.wait that has no timeout, unless it was only waiting for one that is done."""
    if coroutine.cr_code.co_name != "_wait" or coroutine.cr_code.co_filename != asyncio.tasks.__file__:
        return None
    local = coroutine.cr_frame.f_locals if coroutine.cr_frame is not None else {}
    if local.get("timeout", 0) is not None or "fs" not in local:
        return None
    futures: list[asyncio.Future[Any]] = list(local["fs"])
    is_over = local["return_when"] != asyncio.ALL_COMPLETED and any(future.done() for future in futures)
    return None if is_over else futures
