"""What a forked child must not use of its parent, and how it releases it.

``os.fork`` copies the memory and the descriptors of a process, but only one of its threads. In the child, a loop in a
thread never answers, a connection is shared with the parent, and a file that the parent locked with flock stays locked
while the child lives. So an open resource belongs to the process that opened it (Owner) and refuses every use in the
child. As soon as the child begins to run, it releases the parent's locks and sockets.

A process that is started with spawn, or that replaces its program after the fork as subprocess does, inherits nothing.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

from holdfast.model.errors import StoreForked


class _Process:
    """This process, as an object: a process id is reused one day, an object is not."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid = os.getpid()


class ForkObserver(Protocol):
    """Something that has to release its resources in a forked child."""

    def release_in_child(self) -> None:
        """Called in the child, before anything else runs there, and again in the child's own children."""


_here = _Process()
_no_fork = threading.RLock()
"""Held by a thread while it forks, or while no other thread may fork."""
_locks: set[LockFile] = set()
_observers: WeakSet[ForkObserver] = WeakSet()
_owners: WeakSet[Owner] = WeakSet()


class Owner:
    """The process that opened something."""

    __slots__ = ("__weakref__", "_process", "_what", "pid")

    def __init__(self, what: str) -> None:
        """Make this process the owner of ``what``, a name for messages."""
        self._what = what
        self._process = _current()
        self.pid: int | None = self._process.pid
        """The id of the owner; None in a forked child. Compared with ``os.getpid()`` it saves the call of ``check``
        where that is called very often."""
        _owners.add(self)

    @property
    def is_other(self) -> bool:
        """Whether this process is a forked child of the owner."""
        return self._process is not _current()

    def check(self) -> None:
        """Raise StoreForked in any process but the owner."""
        if self._process is not _here or self._process.pid != os.getpid():
            _current()
            raise StoreForked(
                f"{self._what} was opened in process {self._process.pid}, from which this one ({_here.pid}) was forked "
                "afterwards. Connections, locks and threads cannot be used on both sides of a fork; nothing was "
                "touched. Open the store after the fork, with a Holdfast that was not open before it; or start this "
                "process with spawn instead of fork"
            )


class LockFile:
    """An open file to be locked with flock. A forked child releases it; the parent keeps the lock.

    The lock belongs to the open file, which a child shares: without this, the child would hold it when the parent ends.
    """

    def __init__(self, path: str | os.PathLike[str], mode: int = 0o666) -> None:
        """Open the file; if it is missing, create it with ``mode``. No program started from here inherits it.

        A symbolic link is refused: another user may have put it there, and it may lead anywhere.
        """
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        with _no_fork:  # a child forked between the two lines would keep the file
            self.descriptor = os.open(path, flags, mode)
            _locks.add(self)
        self._owner = Owner(os.fspath(path))

    def close(self) -> None:
        """Close the file, which releases the lock."""
        if self._owner.is_other:
            return
        with _no_fork:
            _locks.discard(self)
            os.close(self.descriptor)


class ForkSafeLock:
    """A lock for threads that is free in a forked child: the thread that holds it may not exist there."""

    def __init__(self) -> None:
        """Start unlocked."""
        self._lock = threading.Lock()
        watch(self)

    def release_in_child(self) -> None:
        """See ForkObserver."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """Acquire the lock."""
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        """Release the lock."""
        self._lock.release()


def watch(observer: ForkObserver) -> None:
    """Call ``release_in_child`` in every forked child, while the object lives."""
    _observers.add(observer)


def blank(descriptor: int) -> None:
    """Point an inherited descriptor to the null device; the parent's connection or lock is not affected.

    The number stays in use: code that still has the number must not find another file under it.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nowhere, descriptor, inheritable=False)
    finally:
        os.close(nowhere)


def _current() -> _Process:
    if _here.pid != os.getpid():
        _begin_child()  # forked by a library without Python's fork hooks
    return _here


def _begin_child() -> None:
    global _here, _no_fork
    _here, _no_fork = _Process(), threading.RLock()
    while _locks:
        with suppress(OSError):
            blank(_locks.pop().descriptor)
    for owner in list(_owners):
        owner.pid = None
    for observer in list(_observers):
        observer.release_in_child()


def _begin_fork() -> None:
    _no_fork.acquire()


def _end_fork() -> None:
    _no_fork.release()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_begin_fork, after_in_parent=_end_fork, after_in_child=_begin_child)
