"""The measurements: what is run, what it is compared with, and the aim."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import mean, median

from benchmarks import filling, processes
from benchmarks.databases import Databases
from benchmarks.figures import Aim, Figure, compared
from benchmarks.peering import Peers
from benchmarks.subject import Rate

ONE_ROW = "raw one-row commits/s"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of each measurement."""

    seconds: float = 2.0
    """For measurements that have no natural end."""
    rounds: int = 3
    tasks: int = 200
    steps: int = 20
    drained: int = 10_000
    drained_by_huey: int = 3_000
    samples: int = 200
    in_flight: int = 10_000
    settling: float = 3.0
    """Seconds between their start and the measurement of their memory."""
    neighbours: int = 1_000_000


@dataclass(slots=True)
class Rounds:
    """The results of the rounds of one measurement."""

    ours: list[Rate] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bench:
    """Databases to measure on, peers to compare with, and the sizes."""

    databases: Databases
    sizes: Sizes
    peers: Peers | None

    def rounds(
        self,
        name: str,
        sizes: Mapping[str, object],
        *,
        raw_rows: int = 0,
        peer: str = "",
        peer_sizes: Mapping[str, object] | None = None,
    ) -> Rounds:
        """Measure Holdfast, each time in an empty store, between two measurements of the raw limit and before the peer.

        The speed of a disk changes tenfold within minutes: only values measured within seconds are compared.
        """
        rounds = Rounds()
        for _ in range(self.sizes.rounds):
            before = self._raw(raw_rows)
            with self.databases.fresh() as url:
                rounds.ours.append(Rate(*processes.measure(name, url, **sizes)))
            rounds.raw += [mean([before, self._raw(raw_rows)])] if raw_rows else []
            if peer and self.peers is not None:
                with self.databases.fresh_for_peer() as url:
                    rounds.peer.append(self.peers.measure(peer, url, **(peer_sizes or sizes)))
        return rounds

    def _raw(self, rows: int) -> float:
        return self.databases.raw(self.sizes.seconds / 4, rows=rows) if rows else 0.0

    def compared(
        self, what: str, unit: str, ours: list[Rate], other: list[float], *, against: str, at_least: float
    ) -> Figure:
        """Return the line that compares our rate with the other."""
        return compared(self.databases.name, what, unit, ours, other, against=against, aim=Aim(at_least))


def sequential(bench: Bench) -> Iterator[Figure]:
    """One task, step after step: the speed of a single agent."""
    rounds = bench.rounds("sequential_steps", {"seconds": bench.sizes.seconds}, raw_rows=1)
    what = "sequential steps of one task"
    yield bench.compared(what, "steps/s", rounds.ours, rounds.raw, against=ONE_ROW, at_least=0.8)


def concurrent(bench: Bench) -> Iterator[Figure]:
    """Many tasks in one worker: the case for group commit."""
    sizes = {"tasks": bench.sizes.tasks, "steps": bench.sizes.steps}
    rounds = bench.rounds("concurrent_steps", sizes, raw_rows=100, peer="dbos")
    what = f"{bench.sizes.tasks} tasks x {bench.sizes.steps} steps"
    yield bench.compared(what, "steps/s", rounds.ours, rounds.peer, against="DBOS steps/s", at_least=30)
    against = "raw rows/s, 100 a transaction"
    yield bench.compared(what, "steps/s", rounds.ours, rounds.raw, against=against, at_least=0.25)


def drain(bench: Bench) -> Iterator[Figure]:
    """A queue of tasks that do nothing: the cost of claiming and completing."""
    sizes = {"tasks": bench.sizes.drained}
    if bench.databases.is_postgres:
        rounds = bench.rounds("drain", sizes, peer="pgqueuer", peer_sizes={**sizes, "batch": 100})
        against, at_least = "PgQueuer tasks/s, batch 100", 1.5
    else:
        rounds = bench.rounds("drain", sizes, peer="huey", peer_sizes={"tasks": bench.sizes.drained_by_huey})
        against, at_least = "Huey tasks/s", 15.0
    what = f"drain of {bench.sizes.drained:,} no-op tasks"
    yield bench.compared(what, "tasks/s", rounds.ours, rounds.peer, against=against, at_least=at_least)


def submit(bench: Bench) -> Iterator[Figure]:
    """Submissions, one by one, from many coroutines, and in bulk."""
    for how, at_least in (("single", 0.75), ("concurrent", 10.0), ("bulk", 20.0)):
        rounds = bench.rounds(f"submit_{how}", {"seconds": bench.sizes.seconds}, raw_rows=1)
        what = f"submit, {how}"
        yield bench.compared(what, "tasks/s", rounds.ours, rounds.raw, against=ONE_ROW, at_least=at_least)


def latency(bench: Bench) -> Iterator[Figure]:
    """From the call of submit in one process to the start of the task in an idle worker, another process."""
    rounds = []
    for _ in range(bench.sizes.rounds):
        with bench.databases.fresh() as url:
            rounds.append(processes.latencies(url, bench.sizes.samples))
    for percent, at_most in ((50, 5.0), (99, 15.0)):
        values = [sample[len(sample) * percent // 100] for sample in rounds]
        yield Figure(
            store=bench.databases.name,
            what=f"idle queue, submit to start, p{percent}",
            unit="ms",
            ours=median(values),
            aim=Aim(at_most, at_most=True, unit="ms"),
            rounds=values,
        )


def memory(bench: Bench) -> Iterator[Figure]:
    """Tasks in flight, each inside a step that awaits something."""
    with bench.databases.fresh() as url:
        (used,) = processes.measure("memory", url, tasks=bench.sizes.in_flight, settling=bench.sizes.settling)
    yield Figure(
        store=bench.databases.name,
        what=f"memory of each of {bench.sizes.in_flight:,} tasks in flight",
        unit="KB",
        ours=used,
        aim=Aim(6, at_most=True, unit="KB"),
        rounds=[used],
    )


def finished(bench: Bench) -> Iterator[Figure]:
    """A drain in a store with many finished tasks."""
    yield _drain_beside(bench, "finished", filling.add_finished)


def pending(bench: Bench) -> Iterator[Figure]:
    """A drain while many more tasks wait, in another queue and later in the same one."""
    yield _drain_beside(bench, "pending", filling.add_pending)


def _drain_beside(bench: Bench, what: str, fill: Callable[[str, int], Awaitable[None]]) -> Figure:
    rates: dict[bool, list[Rate]] = {True: [], False: []}
    with bench.databases.fresh() as empty, bench.databases.fresh() as full:
        asyncio.run(_awaited(fill(full, bench.sizes.neighbours)))
        for url in (empty, full):  # a new store is slower at first: its files grow, PostgreSQL has no statistics yet
            processes.measure("drain", url, tasks=bench.sizes.drained)
        for number in range(bench.sizes.rounds):
            for crowded in (True, False) if number % 2 else (False, True):  # take turns in going first
                url = full if crowded else empty
                rates[crowded].append(Rate(*processes.measure("drain", url, tasks=bench.sizes.drained)))
    return bench.compared(
        f"drain beside {bench.sizes.neighbours:,} {what} tasks",
        "tasks/s",
        rates[True],
        [rate.per_second for rate in rates[False]],
        against="tasks/s in an empty store",
        at_least=0.9,
    )


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable


MEASURES: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    measure.__name__: measure for measure in (sequential, concurrent, drain, submit, latency, memory, finished, pending)
}
