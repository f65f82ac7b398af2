"""What limits, keys and schedules cost: each line compared with the same work without them, in the same run.

``python -m benchmarks.flow [--quick] [--only keys] [--store sqlite] [--tasks N] [--rounds N] [--json FILE]``. A line
drains a queue: it claims 100 tasks at a time and completes them. Both sides have as many tasks pending, in stores of
their own, and are drained in turn, a small part each: what else the machine does slows both. Only the medians of the
ratios are meaningful: of the rates, and of the processor time of this process and of the server together, for which it
matters less what else runs.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.store import NAME, Bench
from holdfast import Context, Holdfast, Limit, NewTask, StateStore, open_store
from tests.postgres_server import PostgresServer, start_postgres

KEYS: Final = 10_000
"""Keys of the limit that holds for each of its keys apart."""

SCHEDULES: Final = 100

BATCH: Final = 1000
"""Tasks in one submission."""

STORES: Final = ("sqlite", "postgres")

Clock = Callable[[], float]
"""Seconds of processor time that were used until now."""


class Database(NamedTuple):
    """A kind of store to measure."""

    name: str
    create: Callable[[], str]
    """Makes an empty database and returns its URL."""
    processor_time: Clock


class Line(NamedTuple):
    """One line of the table: how its tasks differ from plain ones, and what the store has to know for that."""

    what: str
    prepare: Callable[[StateStore], Awaitable[object]]
    make: Callable[[int], NewTask]


async def _no_preparation(_: StateStore) -> None:
    """Leave the store without settings."""


def _plain(number: int) -> NewTask:
    return NewTask(name=NAME, user_input=number)


def _of_one_key(number: int) -> NewTask:
    return NewTask(name=NAME, user_input=number, limits=("model",))


def _in_turn(number: int) -> NewTask:
    return NewTask(name=NAME, user_input=number, limits=(f"tenant:{number % KEYS}",))


def _ten_together(number: int) -> NewTask:
    return NewTask(name=NAME, user_input=number, limits=(f"tenant:{number // 10 % KEYS}",))


async def _two_of_each(store: StateStore) -> None:
    await store.set_limit(Limit(name="tenant", concurrency=2, each=True))


async def _one_key(store: StateStore) -> None:
    await store.set_limit(Limit(name="model", concurrency=1000))


async def _a_rate(store: StateStore) -> None:
    await store.set_limit(Limit(name="model", rate=1_000_000, per=timedelta(seconds=10)))


async def _a_full_key(store: StateStore) -> None:
    """Let many tasks of one key stand in front of all others, which it has no room for."""
    await _one_key(store)
    await store.pause("limit:model", by="benchmark")
    for numbers in _batches(range(5 * BATCH)):
        await store.submit([NewTask(name=NAME, limits=("model",), priority=9) for _ in numbers])


PLAIN: Final = Line("plain", _no_preparation, _plain)

LINES: Final[Mapping[str, Sequence[Line]]] = {
    "limits": (
        Line(f"behind {5 * BATCH:,} tasks of a full key", _a_full_key, _plain),
        Line("one key, 1,000 at work", _one_key, _of_one_key),
        Line("one key with a rate", _a_rate, _of_one_key),
    ),
    "keys": (
        Line(f"{KEYS:,} keys in turn, 2 at work with each", _two_of_each, _in_turn),
        Line(f"{KEYS:,} keys, ten tasks of one behind each other", _two_of_each, _ten_together),
    ),
}
"""By what ``--only`` calls them; ``schedules`` is measured otherwise."""


def _batches(numbers: Iterable[int]) -> Iterable[list[int]]:
    remaining = iter(numbers)
    return iter(lambda: list(itertools.islice(remaining, BATCH)), [])


class Cost(NamedTuple):
    """What each item took: seconds, and seconds of processors."""

    wall: float
    processor: float


class Meter:
    """Measures from when it is made."""

    def __init__(self, processor_time: Clock) -> None:
        """Start."""
        self._clock = processor_time
        self._began, self._processor = time.perf_counter(), processor_time()

    def cost(self, items: int) -> Cost:
        """Return what each of so many items took."""
        return Cost((time.perf_counter() - self._began) / items, (self._clock() - self._processor) / items)


class Side:
    """One of the two stores of a comparison, with its worker."""

    def __init__(self, line: Line, store: StateStore, processor_time: Clock) -> None:
        """Compare this store."""
        self.line, self.store = line, store
        self._bench = Bench(store, 0)
        self._clock = processor_time

    async def fill(self, count: int) -> Cost:
        """Submit the tasks; the worker is there from then on."""
        await self.line.prepare(self.store)
        await self._bench.start()
        meter = Meter(self._clock)
        for numbers in _batches(range(count)):
            await self.store.submit([self.line.make(number) for number in numbers])
        return meter.cost(count)

    async def drain(self, count: int) -> Cost:
        """Claim and complete so many of them, with a sweep as a worker makes it now and then."""
        meter, done = Meter(self._clock), 0
        await self.store.sweep()
        while done < count:
            finished = (
                await self._bench.complete_some() or (await self.store.sweep(), await self._bench.complete_some())[1]
            )
            if not finished:
                raise RuntimeError(f"{self.line.what}: no task can be claimed after {done} of {count}")
            done += finished
        return meter.cost(done)


async def compare(line: Line, database: Database, *, tasks: int, rounds: int) -> dict[str, object]:
    """Fill two stores, one with the line's tasks and one with plain ones, and drain a fifth of them in turn."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(database.create())) for _ in range(2)]
        ours, plain = (
            Side(kind, store, database.processor_time) for kind, store in zip((line, PLAIN), stores, strict=True)
        )
        filled = await ours.fill(tasks), await plain.fill(tasks)
        part = max(tasks // 5 // rounds, 100)
        drained = []
        for number in range(rounds):  # the second side finds a processor that is warm, and perhaps a checkpoint
            if number % 2:
                theirs = await plain.drain(part)
                drained.append((await ours.drain(part), theirs))
            else:
                drained.append((await ours.drain(part), await plain.drain(part)))
    return {
        "what": line.what,
        "drained": 1 / median(ours.wall for ours, _ in drained),
        "drain": median(theirs.wall / ours.wall for ours, theirs in drained),
        "drain cpu": median(theirs.processor / ours.processor for ours, theirs in drained),
        "microseconds": [median(cost.processor for cost in costs) * 1_000_000 for costs in zip(*drained, strict=True)],
        "submitted": 1 / filled[0].wall,
        "submit": filled[1].wall / filled[0].wall,
        "submit cpu": filled[1].processor / filled[0].processor,
    }


async def compare_schedules(database: Database, *, seconds: float) -> dict[str, object]:
    """Let one worker fire schedules, each once a second, and run their tasks; against tasks that a program submits."""
    fired = await _run_each_second(database, seconds=seconds, by_schedules=True)
    submitted = await _run_each_second(database, seconds=seconds, by_schedules=False)
    return {
        "what": f"{SCHEDULES} schedules, a task a second each",
        "drained": 1 / fired.wall,
        "drain": submitted.wall / fired.wall,
        "drain cpu": submitted.processor / fired.processor,
    }


async def _run_each_second(database: Database, *, seconds: float, by_schedules: bool) -> Cost:
    hold, ended = Holdfast(database.create()), itertools.count()

    @hold.task
    async def nothing(ctx: Context) -> None:
        del ctx
        next(ended)

    async def submit() -> None:
        while True:
            await asyncio.gather(*(hold.submit(nothing) for _ in range(SCHEDULES)))
            await asyncio.sleep(1)

    async with hold, hold.worker(concurrency=SCHEDULES):
        for number in range(SCHEDULES if by_schedules else 0):
            await hold.schedule(f"schedule-{number}", nothing, every=timedelta(seconds=1))
        submitting = None if by_schedules else asyncio.create_task(submit())
        await asyncio.sleep(1)
        before, meter = next(ended), Meter(database.processor_time)
        await asyncio.sleep(seconds)
        cost = meter.cost(next(ended) - before)
        if submitting is not None:
            submitting.cancel()
    return cost


def _number(cell: object) -> str:
    return "" if not isinstance(cell, float) else f"{cell:,.0f}" if cell > BATCH // 10 else f"{cell:,.2f}"


COLUMNS: Final = ("drained", "drain", "drain cpu", "submitted", "submit", "submit cpu")


def _show(results: Sequence[dict[str, object]]) -> Table:
    table = Table("store", "what", "drained a second", "of plain", "by CPU", "submitted a second", "of plain", "by CPU")
    for result in results:
        table.add_row(str(result["store"]), str(result["what"]), *(_number(result.get(name)) for name in COLUMNS))
    return table


def _time_of(server: PostgresServer) -> float:
    """Return the processor time of this process, of a server, and of all processes that it ever started."""
    postmaster = psutil.Process(server.pid)
    total = time.process_time() + sum(postmaster.cpu_times()[:4])
    for child in postmaster.children():
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:  # it has ended meanwhile, and counts as the postmaster's from now on
            continue
    return total


async def run(asked: argparse.Namespace) -> list[dict[str, object]]:
    """Measure the lines that were asked for, on each store with its default durability."""
    results: list[dict[str, object]] = []
    for name in [asked.store] if asked.store else STORES:
        if name == "sqlite":
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                numbers = itertools.count()
                files = Database("SQLite", lambda: f"sqlite:///{folder}/{next(numbers)}.db", time.process_time)  # noqa: B023
                results += await _measure(files, asked)
        else:
            with start_postgres(18, durable=True) as server:
                results += await _measure(
                    Database("PostgreSQL 18", server.create_database, lambda: _time_of(server)),
                    asked,
                )
    return results


async def _measure(database: Database, asked: argparse.Namespace) -> list[dict[str, object]]:
    results = []
    for kind in asked.only or (*LINES, "schedules"):
        if kind == "schedules":
            measured = [compare_schedules(database, seconds=2.0 if asked.quick else 5.0)]
        else:
            measured = [compare(line, database, tasks=asked.tasks, rounds=asked.rounds) for line in LINES[kind]]
        for measuring in measured:
            result = {"store": database.name, **await measuring}
            shown = (
                f"{database.name}: {result['what']}: {result['drain']:.2f} of plain, {result['drain cpu']:.2f} by CPU"
            )
            Console(stderr=True).print(shown, highlight=False)
            results.append(result)
    return results


def main() -> None:
    """Print a table and, if asked, write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tasks and rounds: all of it in less than a minute")
    parser.add_argument("--tasks", type=int, help="how many tasks are pending on each side; by default 100,000")
    parser.add_argument("--rounds", type=int, help="in how many parts a fifth of them is drained; the median counts")
    parser.add_argument("--only", action="append", choices=(*LINES, "schedules"), help="only these lines")
    parser.add_argument("--store", choices=STORES, help="only this store")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    asked = parser.parse_args()
    asked.tasks = asked.tasks or (10_000 if asked.quick else 100_000)
    asked.rounds = asked.rounds or (3 if asked.quick else 10)
    results = asyncio.run(run(asked))
    Console(width=None if sys.stdout.isatty() else 150).print(_show(results))
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
