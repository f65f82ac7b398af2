"""Each fast path of the stores compared with the general path that does the same, in the same run.

``python -m benchmarks.fast_paths [--seconds S] [--rounds N]``. A fast path is switched off by replacing it with its
general path. Both are measured in turn, several times, and only their ratio is meaningful: of the rate, and of the
processor time of this process. docs/decisions/0027-fast-paths-of-the-stores.md has the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from benchmarks.store import Bench, step_commit
from benchmarks.subject import Rate, Watch
from holdfast import open_store
from holdfast.model.commit import Commit
from holdfast.store.jsonfile import store as json_store
from holdfast.store.postgres import commit as postgres_commit
from holdfast.store.postgres import journals as postgres_journals
from holdfast.store.postgres import submission as postgres_submission
from holdfast.store.sqlite import commit as sqlite_commit
from holdfast.store.sqlite import lease as sqlite_lease
from holdfast.store.sqlite import submission as sqlite_submission
from holdfast.store.sqlite import writer as sqlite_writer
from holdfast.store.sqlite.plain import PlainCommit
from tests.postgres_server import start_postgres

Off = Callable[[], AbstractContextManager[object]]


class FastPath(NamedTuple):
    """A fast path, the work it is for, and how it is switched off."""

    name: str
    what: Callable[[Bench], Awaitable[Rate]]
    off: Off


def _none_is_plain(commits: Sequence[Commit]) -> Iterator[tuple[Sequence[Commit], list[PlainCommit]]]:
    for commit in commits:
        yield (commit,), []


async def _no_answer(*_: Any) -> None:  # noqa: ANN401 - the arguments of any fast path
    """Leave it to the general path."""


def _line_by_line(tx: Any, request: Any) -> list[Any]:  # noqa: ANN401 - as lease._next_ready
    """Look up the pairs of queue and name, and merge them, even if there is only one."""
    lines = [line for line in tx.all("ready_lines", sqlite_lease._to_json(request.queues)) if line[1] in request.names]  # noqa: SLF001
    return tx.all("merged_ready_tasks", sqlite_lease._to_json(lines), tx.now, request.limit, request.key_form)  # type: ignore[no-any-return]  # noqa: SLF001


async def steps_beside_work(bench: Bench) -> Rate:
    """One step of each of 100 tasks in a group commit, on a busy event loop, like that of a worker."""

    async def work() -> None:
        while True:
            sum(range(20_000))
            await asyncio.sleep(0)

    other = asyncio.create_task(work())
    try:
        return await bench.grouped_steps()
    finally:
        other.cancel()


async def loads(bench: Bench) -> Rate:
    """A task with 20 steps, read as a worker reads it."""
    await bench.submit(1)
    (claimed,) = await bench.claim(1)
    for n in range(1, 21):
        await bench.store.commit([step_commit(claimed, n)])
    watch, n = Watch(), 0
    while watch.seconds < bench.seconds:
        n += 1
        await bench.store.load(claimed.task.id)
    return watch.rate(n)


SQLITE = (
    FastPath(
        "plain: steps, one by one",
        Bench.sequential_steps,
        lambda: patch.object(sqlite_commit, "split_batch", _none_is_plain),
    ),
    FastPath(
        "plain: steps, 100 at once",
        Bench.grouped_steps,
        lambda: patch.object(sqlite_commit, "split_batch", _none_is_plain),
    ),
    FastPath(
        "plain: ends, 100 at once",
        Bench.drain,
        lambda: patch.object(sqlite_commit, "split_batch", _none_is_plain),
    ),
    FastPath(
        "submit_all: 1000 new at once",
        Bench.bulk_submits,
        lambda: patch.object(sqlite_submission, "_all_new", lambda *_: False),
    ),
    FastPath(
        "claim of one queue and name", Bench.drain, lambda: patch.object(sqlite_lease, "_next_ready", _line_by_line)
    ),
    FastPath(
        "COMMIT on the loop: one step", Bench.sequential_steps, lambda: patch.object(sqlite_writer, "INLINE_ITEMS", 0)
    ),
    FastPath("work on the loop: 100 steps", steps_beside_work, lambda: patch.object(sqlite_writer, "MOST_HERE", 0)),
)
POSTGRES = (
    FastPath("load: one statement", loads, lambda: patch.object(postgres_journals, "ROW_BYTES", 1 << 40)),
    FastPath(
        "write_step: a lone step",
        Bench.sequential_steps,
        lambda: patch.object(postgres_commit, "_write_lone_step", _no_answer),
    ),
    FastPath(
        "commit_plain: steps, 100 at once",
        Bench.grouped_steps,
        lambda: patch.object(postgres_commit, "take_plain", lambda _: None),
    ),
    FastPath(
        "commit_plain: ends, 100 at once",
        Bench.drain,
        lambda: patch.object(postgres_commit, "take_plain", lambda _: None),
    ),
    FastPath(
        "submit_one: a lone task",
        Bench.single_submits,
        lambda: patch.object(postgres_submission, "_submit_one", _no_answer),
    ),
)

JSON = (
    FastPath(
        "one file without the journal",
        Bench.sequential_steps,
        lambda: patch.object(json_store, "is_one_file", lambda _: False),
    ),
)


async def compare(url: str, path: FastPath, seconds: float, rounds: int) -> tuple[float, float]:
    """Return the rate and the processor time of the fast path, each divided by that of the general path."""
    rates, costs = [], []
    async with open_store(url) as store:
        bench = Bench(store, seconds)
        await bench.start()
        await path.what(bench)  # warm
        for number in range(rounds):
            found = {}
            for is_off in (True, False) if number % 2 else (False, True):
                with path.off() if is_off else nullcontext():
                    found[is_off] = await path.what(bench)
            rates.append(found[False].per_second / found[True].per_second)
            costs.append(found[False].cpu / found[True].cpu)
    return median(rates), median(costs)


async def run(seconds: float, rounds: int, named: str) -> None:
    """Compare the fast paths whose names begin with ``named``, and print a table."""
    table = Table("store", "fast path", "rate / general path", "processor time")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, start_postgres(18, durable=True) as server:
        for store, scheme, paths in (
            ("SQLite", "sqlite", SQLITE),
            ("JSON files", "json", JSON),
            ("PostgreSQL 18", "postgresql", POSTGRES),
        ):
            for number, path in enumerate(path for path in paths if path.name.startswith(named)):
                is_server = scheme == "postgresql"
                url = server.create_database() if is_server else f"{scheme}:///{folder}/{scheme}-{number}"
                rate, cost = await compare(url, path, seconds, rounds)
                table.add_row(store, path.name, f"{rate:.2f}", f"{cost:.2f}")
                Console(stderr=True).print(f"{store}: {path.name} {rate:.2f} {cost:.2f}")
    Console().print(table)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each figure")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure each path")
    parser.add_argument("--named", default="", help="measure only names that begin with this")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.seconds, arguments.rounds, arguments.named))


if __name__ == "__main__":
    main()
