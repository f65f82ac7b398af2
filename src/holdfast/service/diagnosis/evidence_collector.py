"""Gathering evidence: the one module of a diagnosis that looks. It opens only what opening does not change."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.errors import HoldfastError, NotAStore, StoreDamaged
from holdfast.model.failure import Failure
from holdfast.model.queries import Page, TaskFilter
from holdfast.model.task import HANDOVER, MANUAL, Task
from holdfast.model.transitions import TERMINAL, TaskState
from holdfast.model.worker import WorkerState
from holdfast.redaction import without_password
from holdfast.service.diagnosis.evidence import A_DAY, KEPT, Inside, NamedApplication, StoreEvidence
from holdfast.settings import is_postgres
from holdfast.store.url import make_store

_MOST = 1_000
"""Tasks, approvals and doubts that are looked at one by one. Where there are more, the findings show it."""

_EXTRAS: Final = {
    "postgres": "psycopg",
    "http": "httpx2",
    "openai": "openai",
    "mcp": "mcp",
    "web": "starlette",
    "otel": "opentelemetry",
}
"""Optional parts, each with a module that comes with it."""

_DRIVERS: Final = ("apsw", "psycopg")

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


async def gather(
    url: str,
    *,
    options: Mapping[str, Any] | None = None,
    application: NamedApplication | None = None,
    settings_error: str | None = None,
    unknown_variables: Mapping[str, str | None] | None = None,
    thorough: bool = False,
) -> StoreEvidence:
    """Look at a store and around it. A store that is missing stays so, and one with an older schema is not opened.

    ``options`` say how to open it, beside the URL.
    """
    seen = StoreEvidence(
        url=url,
        settings_error=settings_error,
        unknown_variables=unknown_variables or {},
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        drivers=_versions(),
        extras={extra: find_spec(module) is not None for extra, module in _EXTRAS.items()},
        application=application,
    )
    try:
        seen = _look_first(seen)
        if seen.is_wal and not seen.has_other_schema:
            seen = replace(seen, inside=await _look_inside(url, options or {}, thorough=thorough))
    except HoldfastError as error:
        return replace(seen, failure=error)
    return seen


def _look_first(seen: StoreEvidence) -> StoreEvidence:
    """Look at the file or folder of a store from outside, which opening it might change."""
    make_store(seen.url)  # refuses a URL that is not valid
    parts = urlsplit(seen.url)
    if parts.scheme not in {"sqlite", "json"}:
        return seen
    path = Path(unquote(parts.path.removeprefix("/"))).absolute()
    if not path.exists():
        raise NotAStore(
            f"there is no store at {without_password(seen.url)} (from {Path.cwd()}); submit a task, or set it up: "
            "`holdfast migrate`"
        )
    free = shutil.disk_usage(path).free
    seen = replace(seen, file=path, file_system=file_system_of(path), free_bytes=free)
    if parts.scheme == "json":
        return replace(seen, schema=_json_schema(path))
    from holdfast.store.sqlite.connection import MIGRATIONS  # noqa: PLC0415 - each store when it is asked for
    from holdfast.store.sqlite.peek import peek  # noqa: PLC0415

    if path.is_dir():
        raise NotAStore(f"{path} is a directory; name a file, as in sqlite:///{path}/agents.db: `holdfast config`")
    peeked = peek(path)
    return replace(seen, schema=(peeked.schema, MIGRATIONS[-1].version), is_wal=peeked.is_wal)


def _json_schema(folder: Path) -> tuple[int, int]:
    from holdfast.store.jsonfile.files import FORMAT  # noqa: PLC0415
    from holdfast.store.jsonfile.store import SCHEMA  # noqa: PLC0415

    try:
        return int(json.loads((folder / FORMAT).read_bytes())["schema"]), SCHEMA
    except FileNotFoundError:
        raise NotAStore(f"{folder} holds no store; submit a task, or set it up: `holdfast migrate`") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreDamaged(f"{folder / FORMAT} cannot be read ({error}); restore it from a backup") from error


async def _look_inside(url: str, options: Mapping[str, Any], *, thorough: bool) -> Inside:
    looking: dict[str, Any] = {"migrate": False} if is_postgres(url) else {}
    async with Holdfast(url, **{**options, **looking}) as hold:
        store = hold.store
        before = datetime.now(UTC)
        now = await store.now()
        local = before + (datetime.now(UTC) - before) / 2  # the server answered somewhere in between
        workers = [worker for worker in await store.workers() if worker.state is not WorkerState.DEAD]
        failed = TaskFilter(states=frozenset({TaskState.FAILED}))
        long_failed = TaskFilter(states=frozenset({TaskState.FAILED}), ended_before=now - A_DAY)
        over = TaskFilter(states=TERMINAL, ended_before=now - KEPT)

        async def oldest(state: TaskState) -> Page[Task]:
            return await store.find(TaskFilter(states=frozenset({state})), limit=_MOST, newest_first=False)

        async def number(where: TaskFilter) -> int:
            return sum((await store.count(where)).values())

        async def pending_of(name: str) -> dict[str, int]:
            """Count the pending tasks of a name, by queue."""
            wheres = {queue.name: TaskFilter(states=waiting, name=name, queue=queue.name) for queue in queues}
            counts = {queue: await number(where) for queue, where in wheres.items()}
            return {queue: count for queue, count in counts.items() if count}

        queues, waiting = await store.queues(), frozenset({TaskState.PENDING})
        pending, running = await oldest(TaskState.PENDING), await oldest(TaskState.RUNNING)
        broken = await store.find(failed, limit=_MOST)
        approvals, doubts = await hold.approvals(limit=_MOST + 1), await hold.doubts(limit=_MOST + 1)
        are_cut = {
            "pending": pending.next is not None,
            "running": running.next is not None,
            "failed": broken.next is not None,
            "approvals": len(approvals) > _MOST,
            "doubts": len(doubts) > _MOST,
        }
        inside = Inside(
            vitals=await store.vitals(thorough=thorough),
            now=now,
            local=local,
            workers=workers,
            queues=queues,
            pauses=await store.pauses(),
            queue_settings=await store.queue_settings(),
            limits=await hold.limits(),
            pending=pending.items,
            running=running.items,
            poisoned=sum(_is_poison(task.error) for task in broken.items),
            failed_today=await number(failed) - await number(long_failed),
            prunable=await number(over),
            approvals=approvals[:_MOST],
            doubts=doubts[:_MOST],
            schedules=await hold.schedules(),
            outside=await pending_of(HANDOVER),
            by_hand=await pending_of(MANUAL),
            cut=frozenset(name for name, is_cut in are_cut.items() if is_cut),
        )
        silent = [worker.id for worker in workers if inside.is_silent(worker)]
        return replace(inside, held_by_silent={one: await number(TaskFilter(owner=one)) for one in silent})


def _is_poison(error: Any) -> bool:  # noqa: ANN401 - JSON
    return Failure.from_json(error).type_name == "Poison"


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _DRIVERS:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


# The file system


def file_system_of(path: Path) -> str | None:
    """Return the kind of file system a file is on, as Linux calls it; None where that is not known."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return file_system_in(mounts, PurePosixPath(path.resolve()))


def file_system_in(mounts: str, path: PurePosixPath) -> str | None:
    """Find the file system of a path in the text of /proc/self/mountinfo: that of the innermost mount, the last one."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        place, separator, kind = line.partition(" - ")
        fields = place.split(" ")
        if not separator or len(fields) < 5:  # noqa: PLR2004 - the fifth is where it is mounted
            continue
        point = PurePosixPath(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        depth = len(point.parts)
        if path.is_relative_to(point) and (found is None or depth >= found[0]):
            found = depth, kind.split(" ")[0]
    return None if found is None else found[1]
