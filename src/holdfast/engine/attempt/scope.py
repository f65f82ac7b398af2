"""Scopes: the place of a ``ctx`` call in the journal.

The task's own code is the outermost scope. Each try of a step opens a scope of its own. Names used inside it get keys
below the step's key. Each try counts them from the start, so that every try gets the same inner keys. When a try ends,
its branches end before the next try begins, and a later ``ctx`` call raises.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextvars import ContextVar, copy_context
from types import CoroutineType
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from holdfast.engine.runtime.where import current_task
from holdfast.model.errors import HoldfastError, InvalidValue
from holdfast.model.step import Step

P = ParamSpec("P")
R = TypeVar("R")

OWN = "holdfast:"
"""Keys with this beginning are the engine's own. The rest of such a key may be inside a step."""

INSIDE = "›"  # noqa: RUF001 - chosen on purpose: rare in names, and readable
"""Separates the key of a step from the names used inside it. No name given by a user may contain it."""

LONGEST_PATH = 500
"""Bytes. A longer path is replaced by its digest: databases limit the length of an index entry."""

SHORT_KEY = LONGEST_PATH // 4 - 1
"""Characters. The path inside a step with such a key is never too long, whatever the characters are."""

_DIGEST = "~"

CLEAN_UP_TIMEOUT = 5.0
"""Seconds that a cancelled branch of an ended try gets for its own clean-up."""


def path_inside(key: str) -> str:
    """Return the path of a step: the beginning of all keys inside it."""
    path = key + INSIDE
    body = path.encode("utf-8", "surrogatepass")
    return path if len(body) <= LONGEST_PATH else f"{_DIGEST}{hashlib.sha256(body).hexdigest()[:40]}{INSIDE}"


class Digests:
    """The meaning of the digests in long paths, for the steps that an attempt has seen."""

    __slots__ = ("_around",)

    def __init__(self) -> None:
        """Start without any: few tasks nest that deep."""
        self._around: dict[str, str] = {}

    def note(self, key: str) -> None:
        """Remember the path around a step whose key is so long that the path inside it is a digest."""
        if len(key) > SHORT_KEY and (path := path_inside(key)).startswith(_DIGEST):
            self._around[path] = enclosing_path(key)

    def around(self, path: str) -> str:
        """Return the path around the step that a path belongs to; empty for a step of the task's own code."""
        return self._around.get(path, "") if path.startswith(_DIGEST) else enclosing_path(path[: -len(INSIDE)])

    def is_inside(self, key: str, path: str) -> bool:
        """Return whether a key is below a path, at any depth."""
        around: str | None = enclosing_path(key)
        while around:
            if around.startswith(path):
                return True
            digest = around[: around.index(INSIDE) + 1]
            around = self._around.get(digest) if digest.startswith(_DIGEST) else None
        return False


def enclosing_path(key: str) -> str:
    """Return the path that a key is below; empty for a step of the task's own code."""
    before, separator, _ = key.removeprefix(OWN).rpartition(INSIDE)
    return before + separator


def own_name(key: str) -> str:
    """Return what a key is below the steps that it stands inside of."""
    return key.rpartition(INSIDE)[2]


def enclosing(key: str, steps: Iterable[Step]) -> list[Step]:
    """Return the steps that a key is inside of, the innermost first."""
    by_path = {path_inside(step.key): step for step in steps}
    found = []
    path = enclosing_path(key)
    while (step := by_path.get(path)) is not None:
        found.append(step)
        path = enclosing_path(step.key)
    return found


def check_part(what: str, part: str) -> None:
    """Refuse a user's name that looks like a step inside another one."""
    if INSIDE in part:
        raise InvalidValue(
            f"{what} {part!r} contains {INSIDE!r}, which separates a step from the steps inside it; use another "
            "character"
        )


class ScopeOwner(Protocol):
    """The attempt whose code runs in a scope."""

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""


class Scope:
    """The names in use in one scope, and the branches at work there."""

    __slots__ = ("_branches", "_path", "is_once", "is_over", "limits", "owner", "parent", "step", "used")

    def __init__(
        self,
        owner: ScopeOwner,
        step: str = "",
        parent: Scope | None = None,
        *,
        is_once: bool = False,
        limits: tuple[str, ...] = (),
    ) -> None:
        """``owner`` is the attempt, ``step`` the key of the step whose try this is; empty for the task's own code.

        ``limits`` are the keys of limits that the step has a permit for.
        """
        self.owner = owner
        self.step = step
        self.parent = parent
        self._path: str | None = None if step else ""
        self.is_once: bool = is_once or (parent is not None and parent.is_once)
        """Whether it is inside a ``once`` step, at any depth."""
        self.limits = limits
        self.is_over = False
        self.used: dict[str, tuple[int, object]] = {}
        """How often each name was used, and by which branch."""
        self._branches: set[asyncio.Task[Any]] | None = None

    @property
    def path(self) -> str:
        """The beginning of all keys inside it."""
        if self._path is None:
            self._path = path_inside(self.step)
        return self._path

    def end(self) -> bool:
        """End the try, if this is one; return whether it has branches that must be stopped."""
        if self.parent is None:
            return False  # the task's own code
        self.is_over = True
        return self._branches is not None

    def check(self) -> None:
        """Refuse a call that comes after the end of its try, or of a try around it."""
        scope: Scope | None = self
        while scope is not None:
            if scope.is_over:
                raise HoldfastError(
                    f"ctx was used by a branch of step {scope.step!r} after that try of the step had ended; await what "
                    "the step starts before its function returns or raises (asyncio.TaskGroup does)"
                )
            scope = scope.parent

    @property
    def has_ended(self) -> bool:
        """Whether its try, or a try around it, is over."""
        scope: Scope | None = self
        while scope is not None:
            if scope.is_over:
                return True
            scope = scope.parent
        return False

    def holder_of(self, limit: str) -> str | None:
        """Return the key of the step around this place that has a permit for this limit; None: there is none."""
        scope: Scope | None = self
        while scope is not None:
            if limit in scope.limits:
                return scope.step
            scope = scope.parent
        return None

    def is_inside(self, key: str) -> bool:
        """Return whether this is a try of the step with that key, or of a step inside it."""
        scope: Scope | None = self
        while scope is not None:
            if scope.step == key:
                return True
            scope = scope.parent
        return False

    async def watch(self, call: Coroutine[Any, Any, R]) -> R:
        """Run a call of ``ctx`` as a branch that the end of the try can stop."""
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        if self._branches is None:
            self._branches = set()
        self._branches.add(branch)
        try:
            self.check()
            return await call
        finally:
            call.close()  # if it never began

    async def close(self, is_sending: Callable[[asyncio.Task[Any]], bool], is_stopping: Callable[[], bool]) -> None:
        """Stop the branches of a try that has ended, and wait until they are over.

        A call that must not be repeated is not interrupted: its end is awaited and recorded. If this is cancelled
        meanwhile, it raises CancelledError only at the end. If the attempt is being stopped, the call is interrupted.
        """
        cancelled, stopped = False, set[asyncio.Task[Any]]()
        while left := self._left():
            for branch in left - stopped:
                if not is_sending(branch) or (cancelled and is_stopping()):
                    stopped.add(branch)
                    branch.cancel()
            try:
                over, _ = await asyncio.wait(left, timeout=CLEAN_UP_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                if cancelled:
                    raise
                cancelled = True
                continue
            # A branch that ignores its cancel is harmless: each of its calls of ctx raises.
            if not over and left <= stopped:
                break
        if cancelled:
            raise asyncio.CancelledError

    def _left(self) -> set[asyncio.Task[Any]]:
        """Return the branches that are not over, without the current one: that is the step itself."""
        own, left = current_task(), set[asyncio.Task[Any]]()
        for branch in self._branches or ():
            if not branch.done():
                left.add(branch)
            elif not branch.cancelled():
                branch.exception()  # retrieved, so that asyncio does not report it as never retrieved
        return {branch for branch in left if branch is not own}


SCOPE: ContextVar[Scope] = ContextVar("holdfast_scope")
"""The scope that code runs in. Branches and the threads of blocking functions inherit it."""

_BRANCH: ContextVar[object] = ContextVar("holdfast_branch")


def current_branch() -> object:
    """Return what identifies a branch of a task: the asyncio task, or the thread, that makes a call."""
    return current_task() or _BRANCH.get(None) or threading.current_thread()


# One branch after the other

_BESIDE: WeakKeyDictionary[asyncio.Task[Any], WeakSet[asyncio.Task[Any]]] = WeakKeyDictionary()
"""For each ended asyncio task: the tasks that were made before its end. Empty while the task is under way."""


def note_branch(branch: object, scope: Scope) -> None:
    """Arrange that, when an asyncio task of a task's code ends, the tasks that exist at that time are noted."""
    if isinstance(branch, asyncio.Task) and branch is not scope.owner.runner and branch not in _BESIDE:
        _BESIDE[branch] = WeakSet()
        branch.add_done_callback(_note_end)


def comes_after(branch: object, earlier: object) -> bool:
    """Return whether a branch was made after another one had ended. It is known only for asyncio tasks, not threads."""
    if not isinstance(branch, asyncio.Task) or not isinstance(earlier, asyncio.Task):
        return False
    beside = _BESIDE.get(earlier)
    return earlier.done() and beside is not None and earlier in beside and branch not in beside


def _note_end(ended: asyncio.Task[Any]) -> None:
    # An event loop runs callbacks in the order in which they were scheduled. The end of a task schedules this call; the
    # creation of a task schedules its first step. So a task that has begun by now was made before that end, and a task
    # that has not begun was made after it.
    beside = _BESIDE[ended]
    beside.update(task for task in asyncio.all_tasks(ended.get_loop()) if _has_begun(task))
    beside.add(ended)  # marks that this was noted: a task that begins while it is made may ask before this call


def _has_begun(task: asyncio.Task[Any]) -> bool:
    code = task.get_coro()
    return not inspect.iscoroutine(code) or inspect.getcoroutinestate(code) != inspect.CORO_CREATED


def discard(call: Coroutine[Any, Any, Any]) -> None:
    """Close a call of ``ctx`` that may not have begun, and the call that it watches: otherwise Python warns."""
    frame = call.cr_frame if isinstance(call, CoroutineType) else None
    is_watching = frame is not None and frame.f_code is Scope.watch.__code__
    if frame is not None and is_watching and inspect.getcoroutinestate(call) == inspect.CORO_CREATED:
        frame.f_locals["call"].close()
    call.close()


def as_branch(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs, in any thread, as a branch of the code that called this."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        own = context.copy()
        own.run(_BRANCH.set, object())
        return own.run(function, *args, **kwargs)

    return run
