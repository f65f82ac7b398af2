"""The engine compared with the raw limits of its databases and with its peers, in the same run.

``python -m benchmarks.engine [--quick] [--only NAME] [--store sqlite] [--no-peers] [--fsync-us 500] [--json FILE]``.
docs/benchmarks.md explains the lines. Absolute figures depend on the machine and the day; the ratios count.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape

from benchmarks import slow_disk
from benchmarks.databases import Databases, PostgresDatabases, SqliteDatabases
from benchmarks.figures import Figure, table_of
from benchmarks.measures import MEASURES, Bench, Sizes
from benchmarks.peering import Peers, PeersUnavailable
from benchmarks.processes import SubjectFailed
from tests.postgres_server import start_postgres

STORES = ("sqlite", "postgres")
QUICK = Sizes(
    seconds=1.0, rounds=1, drained=5_000, drained_by_huey=1_000, samples=50, in_flight=2_000, neighbours=50_000
)

_words = Console(stderr=True)


@contextmanager
def databases_of(store: str) -> Iterator[Databases]:
    """Make a place for databases of one kind, with default durability, on disk unless the rig is used."""
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            yield SqliteDatabases(Path(folder))
    else:
        with start_postgres(18, durable=True) as server:
            yield PostgresDatabases(server)


def run(stores: Sequence[str], measures: Sequence[str], sizes: Sizes, peers: Peers | None) -> Iterator[Figure]:
    """Measure one thing after the other. If one fails, it is reported, and the others still run."""
    for store in stores:
        with databases_of(store) as databases:
            bench = Bench(databases, sizes, peers)
            for name in measures:
                try:
                    yield from MEASURES[name](bench)
                except SubjectFailed as failure:
                    _words.print(f"[red]{databases.name}, {name}:[/] {escape(str(failure))}", soft_wrap=True)


def find_peers() -> Peers | None:
    """Install the peers, or print why they are missing."""
    _words.print("Setting up the peers in .bench-venv, which takes a minute the first time ...")
    try:
        return Peers()
    except PeersUnavailable as missing:
        _words.print(f"[yellow]The peers cannot be installed ({missing}): measuring without them.[/]")
        return None


def use_cores(count: int) -> None:
    """Limit this process, and those it starts, to so many cores, if the system can."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def describe_machine(cores: int) -> dict[str, object]:
    """Return the important facts about the machine, and warn if it is busy with something else."""
    load, _, _ = psutil.getloadavg()
    if load > cores / 4:
        _words.print(
            f"[yellow]The machine is busy already (load {load:.1f}): Holdfast needs its cores more than a simple loop "
            "of commits does, so the ratios will be lower than on an idle machine.[/]"
        )
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": cores,
        "fsync_us": slow_disk.microseconds(),
        "load_before": load,
    }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of small sizes, in about two minutes")
    parser.add_argument("--only", action="append", choices=sorted(MEASURES), help="only this; may be repeated")
    parser.add_argument("--store", choices=STORES, help="only this store")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="compare with DBOS, PgQueuer and Huey"
    )
    parser.add_argument("--seconds", type=float, help="how long to measure what has no natural end")
    parser.add_argument("--rounds", type=int, help="how often to measure each thing; the median counts")
    parser.add_argument("--cores", type=int, default=2, help="cores to use, the servers' included (Linux)")
    parser.add_argument("--fsync-us", type=int, help="data in memory, and a fixed time for each sync (Linux)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Print a table and, if asked, write JSON."""
    asked = parse(arguments)
    if asked.fsync_us is not None and slow_disk.microseconds() is None:
        return slow_disk.run_python(["-m", "benchmarks.engine", *arguments], asked.fsync_us)
    sizes = QUICK if asked.quick else Sizes()
    changed = {name: value for name in ("seconds", "rounds") if (value := getattr(asked, name)) is not None}
    use_cores(asked.cores)
    machine = describe_machine(asked.cores)
    stores, measures = [asked.store] if asked.store else STORES, asked.only or list(MEASURES)
    figures = []
    for figure in run(stores, measures, replace(sizes, **changed), find_peers() if asked.peers else None):
        _words.print(str(figure), highlight=False, soft_wrap=True)
        figures.append(figure)
    Console(width=None if sys.stdout.isatty() else 150).print(table_of(figures))
    if asked.json:
        written = {"machine": machine, "figures": [figure.to_json() for figure in figures]}
        asked.json.write_text(json.dumps(written, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
