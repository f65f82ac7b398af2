"""What limits, keys and schedules cost: each line compared with the same work without them, in the same run.

``python -m benchmarks.flow [--tasks N] [--rounds N] [--store sqlite] [--json FILE]``. A line drains a queue: it claims
100 tasks at a time and completes them. Both sides have as many tasks pending, in stores of their own, and are measured
in turn; only the ratio of the rates, and that of the processor time of this process, are meaningful.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.store import NAME, Bench
from benchmarks.subject import Rate, Watch
from holdfast import Context, Holdfast, Limit, NewTask, StateStore, TaskFilter, TaskState, open_store
from tests.postgres_server import start_postgres

KEYS = 10_000
"""Keys of the limit that holds for each of its keys apart."""

SCHEDULES = 100

BATCH = 1000
"""Tasks in one submission."""

Prepare = Callable[[StateStore], Awaitable[None]]
Make = Callable[[int], NewTask]


class Line(NamedTuple):
    """One line of the table: how the tasks differ from plain ones, and what the store has to know for it."""

    what: str
    prepare: Prepare
    make: Make


async def _no_preparation(store: StateStore) -> None:
    """Leave the store without settings."""


def _plain(number: int) -> NewTask:
    return NewTask(name=NAME, user_input=number)


def _of_a_tenant(number: int) -> NewTask:
    return NewTask(name=NAME, user_input=number, limits=(f"tenant:{number % KEYS}",))


def _of_one_key(number: int) -> NewTask:
    return NewTask(name=NAME, user_input=number, limits=("model",))


async def _each_key(store: StateStore) -> None:
    await store.set_limit(Limit(name="tenant", concurrency=2, each=True))


async def _one_key(store: StateStore) -> None:
    await store.set_limit(Limit(name="model", concurrency=1000))


async def _a_rate(store: StateStore) -> None:
    await store.set_limit(Limit(name="model", rate=1_000_000, per=timedelta(seconds=10)))


async def _limits_of_others(store: StateStore) -> None:
    await _each_key(store)
    await store.submit([NewTask(name="other", limits=(f"tenant:{number}",)) for number in range(BATCH)])


LINES: Sequence[Line] = (
    Line("plain tasks beside tasks with limits", _limits_of_others, _plain),
    Line(
        f"{KEYS:,} keys, 2 at work with each", _each_key, lambda n: NewTask(name=NAME, limits=(f"tenant:{n % KEYS}",))
    ),
    Line("one key, 1,000 at work", _one_key, _of_one_key),
    Line("one key with a rate", _a_rate, _of_one_key),
)
PLAIN = Line("plain", _no_preparation, _plain)


async def _submit(store: StateStore, make: Make, count: int) -> Rate:
    watch = Watch()
    for numbers in _batches(range(count)):
        await store.submit([make(number) for number in numbers])
    return watch.rate(count)


def _batches(numbers: Iterable[int]) -> Iterable[list[int]]:
    remaining = iter(numbers)
    return iter(lambda: list(itertools.islice(remaining, BATCH)), [])


async def _drain(bench: Bench, count: int) -> Rate:
    watch, done = Watch(), 0
    while done < count:
        done += (finished := await bench.complete_some())
        if not finished:
            await bench.store.sweep()
    return watch.rate(done)


async def compare(line: Line, urls: tuple[str, str], *, tasks: int, rounds: int) -> dict[str, object]:
    """Fill two stores, one with the line's tasks and one with plain ones, and drain a part of them in turn."""
    async with AsyncExitStack() as stack:
        sides = []
        for url, kind in zip(urls, (line, PLAIN), strict=True):
            store = await stack.enter_async_context(open_store(url))
            await kind.prepare(store)
            bench = Bench(store, 0)
            await bench.start()
            sides.append((bench, kind))
        submits = [await _submit(bench.store, kind.make, tasks) for bench, kind in sides]
        part = tasks // 5 // rounds
        drains = [[await _drain(bench, part) for bench, _ in sides] for _ in range(rounds)]
    return {
        "what": line.what,
        "drained": median(ours.per_second for ours, _ in drains),
        "drain": median(ours.per_second / theirs.per_second for ours, theirs in drains),
        "drain cpu": median(ours.cpu / theirs.cpu for ours, theirs in drains),
        "submitted": submits[0].per_second,
        "submit": submits[0].per_second / submits[1].per_second,
    }


async def fire(url: str, *, count: int, seconds: float) -> dict[str, object]:
    """Let one worker fire this many schedules, each once a second, and run their tasks."""
    hold = Holdfast(url)

    @hold.task
    async def nothing(ctx: Context) -> None: ...

    async with hold:
        for number in range(count):
            await hold.schedule(f"schedule-{number}", nothing, every=timedelta(seconds=1))
        async with hold.worker(concurrency=100):
            await asyncio.sleep(seconds)
        ended = await hold.store.count(TaskFilter(states=frozenset({TaskState.COMPLETED})))
    return {"what": f"{count} schedules, a tick a second each", "drained": ended[TaskState.COMPLETED] / seconds}


def _number(cell: object) -> str:
    return f"{cell:,.2f}" if isinstance(cell, float) else ""


def _show(results: Sequence[dict[str, object]]) -> Table:
    table = Table("store", "what", "drained a second", "of plain", "CPU of plain", "submitted a second", "of plain")
    for result in results:
        cells = [result.get(name) for name in ("drained", "drain", "drain cpu", "submitted", "submit")]
        table.add_row(str(result["store"]), str(result["what"]), *map(_number, cells))
    return table


async def run(stores: Sequence[str], *, tasks: int, rounds: int) -> list[dict[str, object]]:
    """Measure every line on every store, with its default durability."""
    results: list[dict[str, object]] = []
    for name in stores:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            if name == "sqlite":
                results += await _measure("SQLite", _files_in(folder), tasks=tasks, rounds=rounds)
            else:
                with start_postgres(18, durable=True) as server:
                    results += await _measure("PostgreSQL 18", server.create_database, tasks=tasks, rounds=rounds)
    return results


def _files_in(folder: str) -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"sqlite:///{folder}/{next(numbers)}.db"


async def _measure(store: str, fresh: Callable[[], str], *, tasks: int, rounds: int) -> list[dict[str, object]]:
    results = []
    for line in LINES:
        result = {"store": store, **await compare(line, (fresh(), fresh()), tasks=tasks, rounds=rounds)}
        Console(stderr=True).print(f"{store}: {line.what}: drain {result['drain']:.2f} of plain", highlight=False)
        results.append(result)
    results.append({"store": store, **await fire(fresh(), count=SCHEDULES, seconds=5.0)})
    return results


def main() -> None:
    """Print a table and, if asked, write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000, help="how many tasks are pending on each side")
    parser.add_argument("--rounds", type=int, default=3, help="how often a part of them is drained; the median counts")
    parser.add_argument("--store", choices=("sqlite", "postgres"), help="only this store")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    asked = parser.parse_args()
    stores = [asked.store] if asked.store else ["sqlite", "postgres"]
    results = asyncio.run(run(stores, tasks=asked.tasks, rounds=asked.rounds))
    Console(width=None if sys.stdout.isatty() else 150).print(_show(results))
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
