"""Proof that a process is gone, which a missed lease is not: it may only be slow, or cut off."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.model.worker import Worker

PROCESS = "process"
"""Under this name a worker's details say which process it is."""

_STATE, _THREADS, _START_TIME = 0, 17, 19
"""Of the fields of /proc/<pid>/stat behind the command, which may itself hold spaces and brackets."""


def this_process(boot_id: str) -> dict[str, Any]:
    """Return what tells this process from every other, on any machine: for a worker's details."""
    return {"boot": boot_id, "namespace": _namespace(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_gone(worker_id: str, workers: Sequence[Worker], boot_id: str, *, one_machine: bool) -> bool:
    """Say whether the worker's process is proven to be over.

    Proof is that this machine has no such process any more, or that it was booted anew since, where ``one_machine`` is
    all that ever worked with the store. From another machine, or another container, nothing is proven.
    """
    worker = next((one for one in workers if one.id == worker_id), None)
    process = worker.details.get(PROCESS) if worker is not None else None
    if not isinstance(process, Mapping) or process.get("started") is None:
        return False
    if process.get("boot") != boot_id:
        return one_machine
    return process.get("namespace") == _namespace() and _has_ended(int(process["pid"]), process["started"])


def _namespace() -> str | None:
    """Return which process ids these are: containers number their own."""
    if sys.platform != "linux":
        return None
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _has_ended(pid: int, started: int) -> bool:
    """Say whether the process that had this number, and began then, is proven to be over."""
    try:
        os.kill(pid, 0)  # sends nothing; unlike /proc, it also knows processes that are hidden from other users
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    fields = _stat(pid)
    if len(fields) <= _START_TIME:
        return False
    # A zombie, which nobody has collected, has no thread left but its first, and that one does nothing any more.
    is_zombie = fields[_STATE] in {"Z", "X"} and int(fields[_THREADS]) <= 1
    return is_zombie or int(fields[_START_TIME]) != started


def _started(pid: int) -> int | None:
    """Return when a process began, in ticks since the boot; None if there is none, or no way to tell."""
    fields = _stat(pid)
    return int(fields[_START_TIME]) if len(fields) > _START_TIME else None


def _stat(pid: int) -> list[str]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()
