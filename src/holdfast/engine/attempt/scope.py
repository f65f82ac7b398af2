"""Scopes: the place of a ``ctx`` call in the journal.

The task's own code is the outermost scope. Each try of a step opens a scope of its own. Names used inside it are
allotted below the step's key, and afresh for each try, so that every try meets the same inner keys. A try ends like a
step: its branches are over before the next try begins, and a ``ctx`` call that comes later raises.
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
"""Keys with this beginning are the engine's own; what follows may be inside a step."""

INSIDE = "›"  # noqa: RUF001 - meant as it is: rare in names, and readable
"""Stands between the key of a step and the names used inside it. No name given by a user may contain it."""

LONGEST_PATH = 500
"""Bytes. A longer path is replaced by its digest: databases limit the length of what they index."""

SHORT_KEY = LONGEST_PATH // 4 - 1
"""Characters. The path inside a step with such a key is never too long, whatever the characters are."""

_DIGEST = "~"

LAST_WORDS = 5.0
"""Seconds that a cancelled branch of an ended try gets for its own clean-up."""


def path_inside(key: str) -> str:
    """Return what the keys inside a step begin with."""
    path = key + INSIDE
    body = path.encode("utf-8", "surrogatepass")
    return path if len(body) <= LONGEST_PATH else f"{_DIGEST}{hashlib.sha256(body).hexdigest()[:40]}{INSIDE}"


class Digests:
    """What the digests in long paths stand for, as far as an attempt has met the steps they were made of."""

    __slots__ = ("_around",)

    def __init__(self) -> None:
        """Start without any: few tasks nest so deep."""
        self._around: dict[str, str] = {}

    def note(self, key: str) -> None:
        """Remember where a step stands whose key is so long that the paths inside it begin with a digest."""
        if len(key) > SHORT_KEY and (path := path_inside(key)).startswith(_DIGEST):
            self._around[path] = enclosing_path(key)

    def around(self, path: str) -> str:
        """Return the path around the step that a path is inside of; nothing for a step of the task's own code."""
        return self._around.get(path, "") if path.startswith(_DIGEST) else enclosing_path(path[: -len(INSIDE)])

    def is_inside(self, key: str, path: str) -> bool:
        """Say whether a key stands below a path, however deep."""
        around: str | None = enclosing_path(key)
        while around:
            if around.startswith(path):
                return True
            digest = around[: around.index(INSIDE) + 1]
            around = self._around.get(digest) if digest.startswith(_DIGEST) else None
        return False


def enclosing_path(key: str) -> str:
    """Return the path that a key stands below; nothing for a step of the task's own code."""
    before, separator, _ = key.removeprefix(OWN).rpartition(INSIDE)
    return before + separator


def enclosing(key: str, steps: Iterable[Step]) -> list[Step]:
    """Return those of the steps that a key stands inside of, the innermost first."""
    by_path = {path_inside(step.key): step for step in steps}
    found = []
    path = enclosing_path(key)
    while (step := by_path.get(path)) is not None:
        found.append(step)
        path = enclosing_path(step.key)
    return found


def check_part(what: str, part: str) -> None:
    """Refuse a name of the user's that could be taken for a step inside another one."""
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
    """The names in use in one place, and the branches at work there."""

    __slots__ = ("_branches", "_path", "is_once", "is_over", "owner", "parent", "step", "used")

    def __init__(
        self, owner: ScopeOwner, step: str = "", parent: Scope | None = None, *, is_once: bool = False
    ) -> None:
        """``owner`` is the attempt, ``step`` the key of the step whose try this is; none for the task's own code."""
        self.owner = owner
        self.step = step
        self.parent = parent
        self._path: str | None = None if step else ""
        self.is_once: bool = is_once or (parent is not None and parent.is_once)
        """Whether it is inside a ``once`` step, however deep."""
        self.is_over = False
        self.used: dict[str, tuple[int, object]] = {}
        """How often each name was used, and by which branch."""
        self._branches: set[asyncio.Task[Any]] | None = None

    @property
    def path(self) -> str:
        """What the keys inside it begin with."""
        if self._path is None:
            self._path = path_inside(self.step)
        return self._path

    def end(self) -> bool:
        """End the try, if this is one; say whether it has branches that have to be seen to."""
        if self.parent is None:
            return False  # the task's own code
        self.is_over = True
        return self._branches is not None

    def check(self) -> None:
        """Refuse a call that comes after the end of its try, or of one around it."""
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
        """Whether its try, or one around it, is over."""
        scope: Scope | None = self
        while scope is not None:
            if scope.is_over:
                return True
            scope = scope.parent
        return False

    def is_inside(self, key: str) -> bool:
        """Say whether this is a try of the step with that key, or of a step inside it."""
        scope: Scope | None = self
        while scope is not None:
            if scope.step == key:
                return True
            scope = scope.parent
        return False

    async def watch(self, call: Coroutine[Any, Any, R]) -> R:
        """Run a call of ``ctx`` where the end of the try can see and stop it."""
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        if self._branches is None:
            self._branches = set()
        self._branches.add(branch)
        try:
            self.check()
            return await call
        finally:
            call.close()  # one that never began

    async def close(self, is_sending: Callable[[asyncio.Task[Any]], bool], is_stopping: Callable[[], bool]) -> None:
        """Stop the branches of a try that has ended, and wait until they are over.

        A call that must not be made twice is not cut off: its end is awaited and recorded. A cancel that arrives
        meanwhile is passed on when all of this is done; at once if the whole attempt is being stopped.
        """
        cancelled, stopped = False, set[asyncio.Task[Any]]()
        while left := self._left():
            for branch in left - stopped:
                if not is_sending(branch) or (cancelled and is_stopping()):
                    stopped.add(branch)
                    branch.cancel()
            try:
                over, _ = await asyncio.wait(left, timeout=LAST_WORDS, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                if cancelled:
                    raise
                cancelled = True
                continue
            # One that ignores its cancel can do no harm: each of its calls of ctx raises.
            if not over and left <= stopped:
                break
        if cancelled:
            raise asyncio.CancelledError

    def _left(self) -> set[asyncio.Task[Any]]:
        """Return the branches that are not over; that of the step itself is."""
        own, left = current_task(), set[asyncio.Task[Any]]()
        for branch in self._branches or ():
            if not branch.done():
                left.add(branch)
            elif not branch.cancelled():
                branch.exception()  # seen here, so that asyncio does not report it as forgotten
        return {branch for branch in left if branch is not own}


SCOPE: ContextVar[Scope] = ContextVar("holdfast_scope")
"""The scope that code runs in. Branches and the threads of blocking functions inherit it."""

_BRANCH: ContextVar[object] = ContextVar("holdfast_branch")


def current_branch() -> object:
    """Return what tells apart the branches of a task: the asyncio task, or the thread, that makes a call."""
    return current_task() or _BRANCH.get(None) or threading.current_thread()


# One branch after the other

_BESIDE: WeakKeyDictionary[asyncio.Task[Any], WeakSet[asyncio.Task[Any]]] = WeakKeyDictionary()
"""Of asyncio tasks that have ended: those that were made before their end. None yet while it is under way."""


def note_branch(branch: object, scope: Scope) -> None:
    """Have it noted, when an asyncio task of a task's code ends, which others were there before."""
    if isinstance(branch, asyncio.Task) and branch is not scope.owner.runner and branch not in _BESIDE:
        _BESIDE[branch] = WeakSet()
        branch.add_done_callback(_note_end)


def comes_after(branch: object, earlier: object) -> bool:
    """Say whether a branch was made after another one had ended. Only asyncio tasks can tell; threads cannot."""
    if not isinstance(branch, asyncio.Task) or not isinstance(earlier, asyncio.Task):
        return False
    beside = _BESIDE.get(earlier)
    return earlier.done() and beside is not None and earlier in beside and branch not in beside


def _note_end(ended: asyncio.Task[Any]) -> None:
    # An event loop does first what it was asked first. The end of a task asks it for this call, and the making of a
    # task for that one's first step. So a task that has begun by now was made before, and one that has not, after.
    beside = _BESIDE[ended]
    beside.update(task for task in asyncio.all_tasks(ended.get_loop()) if _has_begun(task))
    beside.add(ended)  # says that this was noted: a task that begins at once, while it is made, may come earlier


def _has_begun(task: asyncio.Task[Any]) -> bool:
    code = task.get_coro()
    return not inspect.iscoroutine(code) or inspect.getcoroutinestate(code) != inspect.CORO_CREATED


def discard(call: Coroutine[Any, Any, Any]) -> None:
    """Close a call of ``ctx``, which may not have begun, and the one it watches: Python warns of that otherwise."""
    frame = call.cr_frame if isinstance(call, CoroutineType) else None
    is_watching = frame is not None and frame.f_code is Scope.watch.__code__
    if frame is not None and is_watching and inspect.getcoroutinestate(call) == inspect.CORO_CREATED:
        frame.f_locals["call"].close()
    call.close()


def as_branch(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs, in whichever thread, as a branch of the code that called this."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        own = context.copy()
        own.run(_BRANCH.set, object())
        return own.run(function, *args, **kwargs)

    return run
