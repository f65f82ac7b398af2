"""How fast a store is on this machine: a few seconds each of what an application does most, beside the raw limit.

Measured in a database of its own, which is deleted afterwards: a folder in the working directory for SQLite, a schema
for PostgreSQL. One process does everything; ``make bench`` in a clone measures longer, and compares with others.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.attempt.context import Context
from holdfast.model.errors import InvalidValue, StoreError
from holdfast.model.queries import TaskFilter
from holdfast.model.task import JsonValue
from holdfast.model.transitions import OPEN
from holdfast.settings import is_postgres
from holdfast.store.rawspeed import postgres_commits, sqlite_commits
from holdfast.store.transaction import StoreTransaction

RawCommits: TypeAlias = Callable[[float], Awaitable[float]]
"""Commits one row after the other for so many seconds; returns how many a second."""

MANY_TASKS = 100
"""Tasks at the same time, where many are measured."""

_PARTS = 7
_GRACE = 0.0
"""Seconds a stopped worker waits for its tasks: a measurement that the user stops has no use for them."""

_FEWEST = 20
"""The fewest samples, however slow the disk is: a median needs some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured."""

    backend: str
    version: str
    raw: float
    """Commits of one row each, one after the other, per second: what the disk allows."""
    steps: float
    """Steps per second of one task."""
    crowd_steps: float
    """Steps per second of many tasks at the same time."""
    submits: float
    """Tasks submitted per second, one after the other."""
    drained: float
    """Tasks without steps that one worker does per second."""
    p50_ms: float
    """Milliseconds from a submit to the first line of its task, with an idle worker: the median."""
    p99_ms: float

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return asdict(self)


async def measure(url: str, *, seconds: float, report: Callable[[str], None]) -> Figures:
    """Measure a store of the kind that ``url`` names; ``report`` is called with what is measured now."""
    async with _place(url) as (hold, raw_commits):
        share = seconds / _PARTS
        bench = _Bench(hold, share)
        report("one-row commits")
        before = await raw_commits(share)
        report("steps of one task")
        steps = await bench.steps(1)
        report(f"steps of {MANY_TASKS} tasks")
        crowd = await bench.steps(MANY_TASKS)
        report("submits")
        submits, count = await bench.submits()
        report(f"a worker with {count:,} tasks")
        drained = await bench.drained(count)
        report("latency")
        p50, p99 = await bench.latency()
        report("one-row commits again")
        raw = (before + await raw_commits(share)) / 2  # the speed of a disk changes over time
        vitals = await hold.store.vitals()
        return Figures(
            backend=vitals.backend,
            version=vitals.version,
            raw=raw,
            steps=steps,
            crowd_steps=crowd,
            submits=submits,
            drained=drained,
            p50_ms=p50 * 1000,
            p99_ms=p99 * 1000,
        )


@asynccontextmanager
async def _place(url: str) -> AsyncIterator[tuple[Holdfast, RawCommits]]:
    """Open an empty store, with a way to measure the raw limit beside it; all of it is deleted after the block."""
    if is_postgres(url):
        schema = f"holdfast_bench_{os.urandom(6).hex()}"
        async with Holdfast(url, schema=schema, migrate=True, application_name="holdfast bench") as hold:
            try:
                yield hold, lambda seconds: postgres_commits(url, seconds, table=f"{schema}.raw")
            finally:
                await _drop(hold, schema)
        return
    if urlsplit(url).scheme != "sqlite":
        raise InvalidValue("only SQLite and PostgreSQL can be measured; name one with --database-url")
    try:
        folder = tempfile.TemporaryDirectory(prefix=".holdfast-bench-", dir=Path.cwd())
    except OSError as error:
        raise InvalidValue(f"{Path.cwd()} cannot be written ({error.strerror}); measure in another folder") from error
    with folder as path:
        async with Holdfast(f"sqlite:///{quote(path)}/bench.db") as hold:
            yield hold, lambda seconds: asyncio.to_thread(sqlite_commits, Path(path), seconds)


async def _drop(hold: Holdfast, schema: str) -> None:
    drop = f"DROP SCHEMA {schema} CASCADE"
    try:
        await hold.transaction(_execute, drop, timeout=60)
    except StoreError as error:
        raise StoreError(f"the schema of this measurement could not be dropped ({error}); psql -c '{drop}'") from error


async def _execute(transaction: StoreTransaction, statement: str) -> None:
    await transaction.execute(statement)


class _Bench:
    """The tasks, and what is done with them for so many seconds each."""

    def __init__(self, hold: Holdfast, seconds: float) -> None:
        self._hold = hold
        self._seconds = seconds
        self._started: asyncio.Queue[float] = asyncio.Queue()
        self._many: TaskDefinition[..., int] = hold.task(name="many-steps")(self._many_steps)
        self._none: TaskDefinition[..., None] = hold.task(name="no-steps")(self._no_steps)

    async def _many_steps(self, ctx: Context) -> int:
        give_up = time.perf_counter() + self._seconds
        count = 0
        while time.perf_counter() < give_up or not count:
            count = await ctx.step(f"step-{count}", _one_more, count)
        return count

    async def _no_steps(self, ctx: Context) -> None:
        del ctx
        self._started.put_nowait(time.perf_counter())

    async def steps(self, tasks: int) -> float:
        """Let so many tasks do steps at the same time."""
        async with self._hold.worker(concurrency=tasks, grace=_GRACE):
            began = time.perf_counter()
            handles = [await self._hold.submit(self._many) for _ in range(tasks)]
            counts = await asyncio.gather(*(handle.result() for handle in handles))
            return sum(counts) / (time.perf_counter() - began)

    async def submits(self) -> tuple[float, int]:
        """Submit one task after the other; no worker runs yet."""
        return await self._repeat(lambda: self._hold.submit(self._none))

    async def drained(self, count: int) -> float:
        """Run all pending tasks."""
        began = time.perf_counter()
        async with self._hold.worker(concurrency=MANY_TASKS, grace=_GRACE):
            for _ in range(count):
                await self._started.get()
            # The last ones have begun, and are not recorded yet.
            while any((await self._hold.store.count(TaskFilter(states=OPEN))).values()):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.001)
            return count / (time.perf_counter() - began)

    async def latency(self) -> tuple[float, float]:
        """Submit to an idle worker, and see when the task begins."""
        waits: list[float] = []

        async def submit_and_see() -> None:
            began = time.perf_counter()
            handle = await self._hold.submit(self._none)
            waits.append(await self._started.get() - began)
            await handle.result()

        async with self._hold.worker(concurrency=MANY_TASKS, grace=_GRACE):
            await self._repeat(submit_and_see)
        cuts = quantiles(waits, n=100)
        return cuts[49], cuts[98]

    async def _repeat(self, act: Callable[[], Awaitable[Any]]) -> tuple[float, int]:
        """Repeat a call; return how often per second, and how often in all."""
        began, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < self._seconds or count < _FEWEST:
            await act()
            count += 1
        return count / passed, count


def _one_more(count: int) -> int:
    return count + 1
