"""Proof that a process has ended. An expired lease is not a proof: the process may be slow, or cut off."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.model.worker import Worker

PROCESS = "process"
"""The key in a worker's details under which its process is described."""

_STATE, _THREADS, _START_TIME = 0, 17, 19
"""Positions in /proc/<pid>/stat, counted after the command, because a command may hold spaces and brackets."""


def this_process(boot_id: str) -> dict[str, Any]:
    """Return what identifies this process among all processes on all machines, for a worker's details."""
    return {"boot": boot_id, "namespace": _namespace(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_gone(worker_id: str, workers: Sequence[Worker], boot_id: str, *, one_machine: bool) -> bool:
    """Return whether it is proven that the worker's process has ended.

    There are two proofs. This machine has no such process any more. Or it has been booted since, and ``one_machine`` is
    true: only one machine ever uses the store. About a process on another machine or in another container nothing can
    be proven.
    """
    worker = next((one for one in workers if one.id == worker_id), None)
    process = worker.details.get(PROCESS) if worker is not None else None
    if not isinstance(process, Mapping) or process.get("started") is None:
        return False
    if process.get("boot") != boot_id:
        return one_machine
    return process.get("namespace") == _namespace() and _has_ended(int(process["pid"]), process["started"])


def _namespace() -> str | None:
    """Return the namespace of the process ids: each container numbers its own processes."""
    if sys.platform != "linux":
        return None
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _has_ended(pid: int, started: int) -> bool:
    """Return whether it is proven that the process with this id and start time has ended."""
    try:
        os.kill(pid, 0)  # sends no signal; unlike /proc, it also finds processes that are hidden from other users
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    fields = _stat(pid)
    if len(fields) <= _START_TIME:
        return False
    # A zombie is a process whose parent has not collected it yet. Only its first thread is left, and it does nothing.
    is_zombie = fields[_STATE] in {"Z", "X"} and int(fields[_THREADS]) <= 1
    return is_zombie or int(fields[_START_TIME]) != started


def _started(pid: int) -> int | None:
    """Return when a process started, in ticks since the boot; None if there is no such process, or it is not known."""
    fields = _stat(pid)
    return int(fields[_START_TIME]) if len(fields) > _START_TIME else None


def _stat(pid: int) -> list[str]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()
