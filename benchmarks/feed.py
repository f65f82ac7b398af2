"""What the feed costs: commits with and without what writes it, and steps with and without readers, in the same run.

``python -m benchmarks.feed [--rounds N] [--seconds S] [--store sqlite] [--json FILE]``. The two sides of a line have a
store each, and are measured in turn. The ratios of the rates mean something on a machine that does nothing else;
the processor time, of this process and on PostgreSQL of the server's sessions, means something on any.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import apsw
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.store import Bench, step_commit
from benchmarks.subject import Rate, Watch, increment
from holdfast import Context, Holdfast, open_store
from holdfast.model.worker import Claimed
from holdfast.store.postgres import PostgresStore
from tests.postgres_server import start_postgres

READERS = (1, 1000)
_FED = re.compile(r"WITH written AS \(\s+(INSERT INTO.*?)\s+RETURNING task_id.*?HAVING count\(\*\) > 0;", re.DOTALL)
_FUNCTIONS = ("commit_plain", "write_journal", "reopen_child")


class Line(NamedTuple):
    """One comparison: with something, and without it."""

    what: str
    ratio: float
    cpu: float
    cpu_without: float


def stop_sqlite(path: str) -> None:
    """Drop what writes the feed of a file."""
    with contextlib.closing(apsw.Connection(path)) as connection:
        for (name,) in list(connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")):
            if str(name).startswith("feed_"):
                connection.execute(f"DROP TRIGGER {name}")


def stop_postgres(url: str, store: PostgresStore) -> None:
    """Drop what writes the feed of a database."""
    queries = store._backend.queries  # noqa: SLF001 - a store has no way to say so
    queries["write_step"] = re.sub(r"\), fed AS \(.*\)(?=\nSELECT)", ")", queries["write_step"], flags=re.DOTALL)
    with psycopg.connect(url, autocommit=True) as connection:
        found = "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE 'feed\\_%'"
        for name, table in connection.execute(found).fetchall():
            connection.execute(f"DROP TRIGGER {name} ON {table}".encode())
        for name in _FUNCTIONS:
            source = "SELECT pg_get_functiondef(('holdfast.' || %s)::regproc)"
            [(text,)] = connection.execute(source, (name,)).fetchall()
            without, count = _FED.subn(r"\1;", text)
            if count != 1:
                raise LookupError(f"{name} does not write the feed as this benchmark expects")
            connection.execute(without.encode())


def sessions(url: str) -> list[int]:
    """Return the processes of the server that work for us."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in found]


def spent(pids: Sequence[int]) -> float:
    """Return the processor time of these processes, in microseconds."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) for pid in pids) / 1000


Act = Callable[[Bench], Awaitable[int]]
"""Does something for a while; returns how often."""


async def lone_steps(bench: Bench) -> int:
    """Commit the steps of one task, one by one."""
    await bench.submit(1)
    (claimed,) = await bench.claim(1)
    return await _commit([claimed], bench)


async def grouped_steps(bench: Bench) -> int:
    """Commit one step of each of 100 tasks at once."""
    await bench.submit(100)
    return await _commit(await bench.claim(100), bench)


async def _commit(claims: Sequence[Claimed], bench: Bench) -> int:
    watch, count = Watch(), 0
    while watch.seconds < bench.seconds:
        count += 1
        await bench.store.commit([step_commit(claimed, count) for claimed in claims])
    return count * len(claims)


async def submissions(bench: Bench) -> int:
    """Submit tasks one by one."""
    watch, count = Watch(), 0
    while watch.seconds < bench.seconds:
        count += 1
        await bench.submit(1)
    return count


async def whole_lives(bench: Bench) -> int:
    """Submit 500 tasks at once, claim and complete them, 100 at once."""
    await bench.submit(500)
    count = 0
    while done := await bench.complete_some():
        count += done
    return count


async def writing(urls: tuple[str, str], rounds: int, seconds: float) -> list[Line]:
    """Compare what a store does with the feed and without it."""
    acts: dict[str, Act] = {
        "steps, one by one": lone_steps,
        "steps, 100 at once": grouped_steps,
        "submissions, one by one": submissions,
        "lives of tasks, 100 at once": whole_lives,
    }
    async with AsyncExitStack() as opened:
        sides: list[tuple[Bench, list[int]]] = []
        for place, url in enumerate(urls):
            store = await opened.enter_async_context(open_store(url))
            if place and isinstance(store, PostgresStore):
                stop_postgres(url, store)
            bench = Bench(store, seconds)
            await bench.start()
            sides.append((bench, sessions(url) if isinstance(store, PostgresStore) else []))
        return [await _compare(what, act, sides, rounds) for what, act in acts.items()]


async def _compare(what: str, act: Act, sides: list[tuple[Bench, list[int]]], rounds: int) -> Line:
    rates: list[list[float]] = [[], []]
    costs: list[list[float]] = [[], []]
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 else (1, 0):
            bench, pids = sides[side]
            watch, before = Watch(), spent(pids)
            count = await act(bench)
            rate = watch.rate(count)
            rates[side].append(rate.per_second)
            costs[side].append(rate.cpu + (spent(pids) - before) / count)
    ratio = median(with_it / without for with_it, without in zip(*rates, strict=True))
    return Line(what, ratio, median(costs[0]), median(costs[1]))


async def reading(url: str, rounds: int, seconds: float) -> list[Line]:
    """Compare the steps of 100 tasks with readers of the feed in the process and without."""
    hold = Holdfast(url)

    @hold.task
    async def work(ctx: Context) -> int:
        watch, count = Watch(), 0
        while watch.seconds < seconds:
            count = await ctx.step(f"step-{count}", increment, count)
        return count

    async def measure(readers: int) -> Rate:
        async with AsyncExitStack() as stack:
            for _ in range(readers):
                await stack.enter_async_context(_reader(hold))
            handles = [await hold.submit(work) for _ in range(100)]
            watch = Watch()
            async with hold.worker(concurrency=100):
                counts = [await handle.result() for handle in handles]
            return watch.rate(sum(counts))

    lines = []
    async with hold:
        for readers in READERS:
            pairs = [(await measure(readers), await measure(0)) for _ in range(rounds)]
            ratio = median(read.per_second / unread.per_second for read, unread in pairs)
            cpu, without = (median(pair[side].cpu for pair in pairs) for side in (0, 1))
            lines.append(Line(f"steps of 100 tasks, {readers:,} readers", ratio, cpu, without))
    return lines


@contextlib.asynccontextmanager
async def _reader(hold: Holdfast) -> AsyncIterator[None]:
    async def read() -> None:
        async for _ in hold.feed(kinds=["task.failed"]):
            pass

    reader = asyncio.create_task(read())
    try:
        yield
    finally:
        reader.cancel()
        await asyncio.wait([reader])


async def measure_sqlite(rounds: int, seconds: float) -> list[Line]:
    """Measure in files of a temporary folder."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        paths = [f"{folder}/{name}.db" for name in ("with", "without", "read")]
        urls = [f"sqlite:///{path}" for path in paths]
        async with open_store(urls[1]):
            pass
        stop_sqlite(paths[1])
        return [*await writing((urls[0], urls[1]), rounds, seconds), *await reading(urls[2], rounds, seconds)]


async def measure_postgres(rounds: int, seconds: float) -> list[Line]:
    """Measure on a server that flushes its log."""
    with start_postgres(18, durable=True) as server:
        urls = [server.create_store() for _ in range(3)]
        return [*await writing((urls[0], urls[1]), rounds, seconds), *await reading(urls[2], rounds, seconds)]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--store", choices=["sqlite", "postgres"])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    ways: dict[str, Any] = {"sqlite": measure_sqlite, "postgres": measure_postgres}
    found = {
        name: asyncio.run(measure(given.rounds, given.seconds))
        for name, measure in ways.items()
        if given.store in {None, name}
    }
    table = Table("", "with / without", "us each with", "without", title="The feed")
    for name, lines in found.items():
        for line in lines:
            table.add_row(f"{name}: {line.what}", f"{line.ratio:.2f}", f"{line.cpu:.1f}", f"{line.cpu_without:.1f}")
    Console().print(table)
    if given.json is not None:
        given.json.write_text(json.dumps({name: [line._asdict() for line in lines] for name, lines in found.items()}))


if __name__ == "__main__":
    main()
