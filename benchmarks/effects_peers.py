"""What engines do to the world when their workers are killed or frozen, counted by an independent process.

``python -m benchmarks.effects_peers [--kills 120] [--freezes 20] [--seed 1] [--only holdfast,dbos] [--json]``.
docs/benchmarks.md describes it. A ledger, in a separate process, counts the calls that were really made.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.effects_lives import Contender
from benchmarks.effects_trials import LANDINGS, Trial
from benchmarks.peering import Peers, PeersUnavailable
from benchmarks.peers.errand import CALLS, business_key
from benchmarks.processes import SubjectFailed
from holdfast.testing.ledger import Ledger

PEERS = {
    "dbos": {"": "DBOS {}"},
    "langgraph": {"sync": 'LangGraph {}, durability "sync"', "": "LangGraph {}, its default"},
}
"""The modes of their drivers, and the label of each."""
ENGINES = ("holdfast", *PEERS)
LAST_CALLS = 1.0
"""Seconds for calls of the last workers that are still on their way."""
TITLES = {
    "killed": "Workers killed with SIGKILL around their calls, and started again",
    "frozen": "Workers stopped with SIGSTOP in a call, replaced by another one that finishes, and continued",
}

_words = Console(stderr=True)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The result of one trial."""

    contender: str
    scenario: str
    hits: int
    landed: dict[str, int]
    """How many hits there were at each stage of a call."""
    orders: int
    expected: int
    """Calls that had to be made for the orders that the engine reports as done."""
    calls: int
    """Calls that were made."""
    doubled: int
    """Calls, identified by their business key, that were made more than once."""
    lost: int
    """Calls that were not made, of orders that the engine reports as done."""
    unfinished: int
    """Orders that the engine gave up."""
    doubts: int
    """Calls that the engine reported as in doubt."""
    seconds: float

    def __str__(self) -> str:
        """Return the tally as one line."""
        bad = f"{self.doubled} doubled, {self.lost} lost, {self.unfinished} unfinished"
        return (
            f"{self.contender}, {self.hits} {self.scenario}: {bad}, {self.doubts} in doubt, {self.expected} calls due"
        )


def judge(trial: Trial, scenario: str, seconds: float) -> Tally:
    """Compare what the engine reported with what the ledger recorded."""
    entries = trial.ledger.entries()
    made = Counter(entry.effect_id for entry in entries)
    done = [order for order, end in trial.ends.items() if end == "done"]
    expected = [business_key(order, step) for order in done for step in CALLS]
    landed = Counter(hit.landed(entries) for hit in trial.hits)
    return Tally(
        contender=trial.contender.label,
        scenario=scenario,
        hits=len(trial.hits),
        landed={where: landed[where] for where in LANDINGS},
        orders=len(trial.ends),
        expected=len(expected),
        calls=len(entries),
        doubled=len(trial.ledger.duplicates()),
        lost=sum(made[key] == 0 for key in expected),
        unfinished=len(trial.ends) - len(done),
        doubts=len(trial.doubts),
        seconds=round(seconds, 1),
    )


def run(contender: Contender, scenario: str, hits: int, seed: int) -> Tally:
    """Try one engine."""
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-effects-") as folder,
        Ledger.start(Path(folder) / "ledger.jsonl") as ledger,
    ):
        trial = Trial(contender, Path(folder), ledger, random.Random(seed), _progress(contender, scenario, hits))
        began = time.monotonic()
        SCENARIOS[scenario](trial, hits)
        seconds = time.monotonic() - began
        time.sleep(LAST_CALLS)
        return judge(trial, scenario, seconds)


SCENARIOS: dict[str, Callable[[Trial, int], None]] = {"killed": Trial.kill_workers, "frozen": Trial.freeze_workers}


def holdfast_contenders() -> list[Contender]:
    """Return Holdfast: an effect declared `once`, with and without a reconcile, and a plain step."""
    modes = {"reconcile": "once, asks the ledger", "human": "once, asks a person", "idempotent": "as the peers"}
    return [
        Contender(label=f"Holdfast: {how}", python=sys.executable, module="benchmarks.effects_holdfast", mode=mode)
        for mode, how in modes.items()
    ]


def peer_contenders(names: Sequence[str]) -> list[Contender]:
    """Install and return the peers among these; none if they cannot be installed."""
    if not names:
        return []
    _words.print("Setting up the peers in .bench-venv, which takes a minute the first time ...")
    try:
        peers = Peers()
    except PeersUnavailable as missing:
        _words.print(f"[yellow]The peers cannot be installed ({missing}): measuring without them.[/]")
        return []
    return [
        Contender(
            label=label.format(peers.version(name)),
            python=peers.python,
            module=f"benchmarks.peers.effects_{name}",
            mode=mode,
        )
        for name in names
        for mode, label in PEERS[name].items()
    ]


def table_of(scenario: str, tallies: Sequence[Tally]) -> Table:
    """Return the table of one scenario."""
    table = Table("engine", title=TITLES[scenario], title_justify="left")
    headings = ("hits", *LANDINGS, "orders", "calls due", "calls made", "doubled", "lost", "unfinished", "in doubt")
    for heading in headings:
        table.add_column(heading, justify="right")
    for tally in tallies:
        bad = [f"[red]{count}[/]" if count else "0" for count in (tally.doubled, tally.lost, tally.unfinished)]
        counts = (tally.hits, *tally.landed.values(), tally.orders, tally.expected, tally.calls)
        table.add_row(escape(tally.contender), *map(str, counts), *bad, str(tally.doubts))
    return table


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.effects_peers", description=__doc__)
    parser.add_argument("--kills", type=int, default=120, help="how many workers of each engine to kill")
    parser.add_argument("--freezes", type=int, default=20, help="how many to freeze, and to replace while frozen")
    parser.add_argument("--seed", type=int, default=1, help="chooses the moments")
    parser.add_argument(
        "--only", type=lambda names: names.split(","), default=ENGINES, help=f"some of {','.join(ENGINES)}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.only) - set(ENGINES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return asked


def main(arguments: Sequence[str]) -> int:
    """Print tables, or JSON."""
    asked = parse(arguments)
    contenders = holdfast_contenders() if "holdfast" in asked.only else []
    contenders += peer_contenders([name for name in PEERS if name in asked.only])
    tallies, failed = [], False
    for scenario, hits in {"killed": asked.kills, "frozen": asked.freezes}.items():
        for contender in contenders if hits else []:
            try:
                tally = run(contender, scenario, hits, asked.seed)
            except SubjectFailed as failure:
                failed = True
                _words.print(f"[red]{contender.label}, {scenario}:[/] {escape(str(failure))}", soft_wrap=True)
            else:
                tallies.append(tally)
                _words.print(escape(str(tally)), highlight=False, soft_wrap=True)
    if asked.json:
        print(json.dumps([asdict(tally) for tally in tallies], indent=1))
    else:
        console = Console(width=None if sys.stdout.isatty() else 180)
        for scenario in SCENARIOS:
            if of_it := [tally for tally in tallies if tally.scenario == scenario]:
                console.print(table_of(scenario, of_it), "")
    return int(failed)


def _progress(contender: Contender, scenario: str, hits: int) -> Callable[[int], None]:
    def tell(number: int) -> None:
        if number % 10 == 0 or number == hits:
            _words.print(f"{escape(contender.label)}: {number} of {hits} {scenario}", highlight=False)

    return tell


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
