"""The stores compared with the raw limits of their databases, in the same run.

``python -m benchmarks.store [--json FILE] [--seconds S]``. The speed of a disk changes tenfold within minutes, so only
the ratios are meaningful: each figure is divided by the raw one-row commits measured right before and after it.
The processor time is that of this process, with the making of the records: an engine in the same process cannot use it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.subject import Rate, Watch
from holdfast import NewTask, StateStore, Step, StepState, TaskState, open_store
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move, WriteStep
from holdfast.model.worker import Claim, Claimed, NewWorker
from holdfast.store.rawspeed import postgres_commits, sqlite_commits
from tests.postgres_server import start_postgres

NAME = "bench"
OUTPUT = b'{"data":"ok","schema":1}'
Raw = Callable[[], Awaitable[float]]


class Bench:
    """One open store and the worker that uses it."""

    def __init__(self, store: StateStore, seconds: float) -> None:
        """Measure each thing for about this long."""
        self.store = store
        self.seconds = seconds
        self.worker = ""
        self._claims = itertools.count(1)

    async def start(self) -> None:
        """Register the worker; its lease is longer than the benchmark."""
        self.worker = (await self.store.register(NewWorker(lease=86_400))).id

    async def claim(self, limit: int) -> list[Claimed]:
        """Claim the next tasks."""
        return await self.store.claim(
            Claim(worker_id=self.worker, number=next(self._claims), limit=limit, names=(NAME,))
        )

    async def submit(self, count: int) -> None:
        """Submit tasks in bulk."""
        await self.store.submit([NewTask(name=NAME, user_input="billing") for _ in range(count)])

    async def sequential_steps(self) -> Rate:
        """One task, one step per Commit, each durable before the next."""
        await self.submit(1)
        (claimed,) = await self.claim(1)
        watch, n = Watch(), 0
        while watch.seconds < self.seconds:
            n += 1
            await self.store.commit([step_commit(claimed, n)])
        rate = watch.rate(n)
        await self.store.commit([_end(claimed, n + 1)])
        return rate

    async def grouped_steps(self, tasks: int = 100) -> Rate:
        """One step of each of 100 tasks in a group commit."""
        await self.submit(tasks)
        claims = await self.claim(tasks)
        watch, n = Watch(), 0
        while watch.seconds < self.seconds:
            n += 1
            await self.store.commit([step_commit(claimed, n) for claimed in claims])
        rate = watch.rate(n * tasks)
        await self.store.commit([_end(claimed, n + 1) for claimed in claims])
        return rate

    async def single_submits(self) -> Rate:
        """One task per call."""
        watch, n = Watch(), 0
        while watch.seconds < self.seconds:
            n += 1
            await self.submit(1)
        rate = watch.rate(n)
        await self._drain()
        return rate

    async def bulk_submits(self, batch: int = 1000) -> Rate:
        """A thousand tasks per call."""
        watch, n = Watch(), 0
        while watch.seconds < self.seconds:
            n += batch
            await self.submit(batch)
        rate = watch.rate(n)
        await self._drain()
        return rate

    async def drain(self, tasks: int = 5000) -> Rate:
        """Claim and complete queued no-op tasks, 100 at a time."""
        await self.submit(tasks)
        watch = Watch()
        return watch.rate(await self._drain())

    async def _drain(self) -> int:
        done = 0
        while finished := await self.complete_some():
            done += finished
        return done

    async def complete_some(self) -> int:
        """Claim up to 100 tasks and complete them; return how many there were."""
        claims = await self.claim(100)
        await self.store.commit([_end(claimed, 1) for claimed in claims])
        return len(claims)


def step_commit(claimed: Claimed, n: int) -> Commit:
    """Return the n-th Commit of a claimed task: one step."""
    step = Step(key=f"step-{n}", kind="step", position=n, state=StepState.COMPLETED, output=OUTPUT)
    return _commit(claimed, n, WriteStep(step))


def _end(claimed: Claimed, n: int) -> Commit:
    return _commit(claimed, n, Move(to=TaskState.COMPLETED, reason="done"))


def _commit(claimed: Claimed, n: int, operation: WriteStep | Move) -> Commit:
    guard = Held(claimed.task.owner or "", claimed.fence, n)
    return Commit(task_id=claimed.task.id, guard=guard, operations=(operation,))


async def measure(name: str, url: str, raw: Raw, seconds: float) -> list[dict[str, object]]:
    """Measure one store, each figure between two measurements of the raw limit."""
    results: list[dict[str, object]] = []
    async with open_store(url) as store:
        bench = Bench(store, seconds)
        await bench.start()
        for what in (
            bench.sequential_steps,
            bench.grouped_steps,
            bench.single_submits,
            bench.bulk_submits,
            bench.drain,
        ):
            before = await raw()
            rate = await what()
            limit = (before + await raw()) / 2
            label = what.__name__.replace("_", " ")
            results.append(
                {"store": name, "what": label, **rate._asdict(), "raw": limit, "ratio": rate.per_second / limit}
            )
            Console(stderr=True).print(f"{name}: {label} {rate.per_second:,.0f} a second")
    return results


async def run(seconds: float) -> list[dict[str, object]]:
    """Measure SQLite, then PostgreSQL with its default durability, both on the real disk."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)

        async def raw_sqlite() -> float:
            return await asyncio.to_thread(sqlite_commits, folder, seconds / 2)

        results = await measure("SQLite", f"sqlite:///{folder}/bench.db", raw_sqlite, seconds)
    with start_postgres(18, durable=True) as server:
        url, raw_url = server.create_database(), server.create_database()

        async def raw_postgres() -> float:
            return await postgres_commits(raw_url, seconds / 2)

        return results + await measure("PostgreSQL 18", url, raw_postgres, seconds)


def main() -> None:
    """Print a table and, if asked, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure each figure")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    results = asyncio.run(run(arguments.seconds))
    table = Table("store", "what", "per second", "raw one-row commits", "ratio", "us of CPU each")
    for result in results:
        table.add_row(
            str(result["store"]),
            str(result["what"]),
            f"{result['per_second']:,.0f}",
            f"{result['raw']:,.0f}",
            f"{result['ratio']:.2f}",
            f"{result['cpu']:.1f}",
        )
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
