"""The benchmark of the engine runs, whatever it measures: tiny sizes, no peers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import engine, slow_disk
from benchmarks.databases import Databases, PostgresDatabases
from benchmarks.figures import Aim, compared, table_of
from benchmarks.measures import MEASURES, Sizes
from benchmarks.subject import Rate
from tests.postgres_server import PostgresServer

TINY = Sizes(seconds=0.02, rounds=1, tasks=3, steps=2, drained=5, samples=3, in_flight=2, neighbours=20, settling=0.0)

EVERY_DAY = ("drain", "latency")
"""Here; two more are measured by the tests below."""

SYNC = """
import os, sys, tempfile, time
with tempfile.TemporaryFile() as file:
    def sync():
        began = time.monotonic()
        os.fsync(file.fileno())
        return time.monotonic() - began
    sys.exit(any(sync() < 0.05 for _ in range(20)))
"""
"""Ends with 1 if any sync was fast: that a busy machine makes one slow proves nothing."""


@pytest.mark.parametrize(
    "measure",
    [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.full) for name in MEASURES],
)
def test_everything_is_measured_on_sqlite(measure: str) -> None:
    figures = list(engine.run(["sqlite"], [measure], TINY, None))
    assert figures
    assert all(figure.ours > 0 for figure in figures if figure.unit != "KB")
    for figure in figures:
        assert (figure.met is None) == figure.against.endswith("not measured")


def test_neighbours_are_copied_on_postgresql(postgres18: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def databases_of(store: str) -> Iterator[Databases]:
        assert store == "postgres"
        yield PostgresDatabases(postgres18)

    monkeypatch.setattr(engine, "databases_of", databases_of)
    (figure,) = engine.run(["postgres"], ["pending"], TINY, None)
    assert figure.what == "drain beside 20 pending tasks"


def test_it_prints_a_table_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "QUICK", TINY)
    monkeypatch.setattr(engine, "use_cores", lambda _: None)  # the other tests go on in this process
    file = tmp_path / "figures.json"
    options = ["--quick", "--no-peers", "--store", "sqlite", "--only", "sequential", "--json", str(file)]
    assert engine.main(options) == 0
    assert "sequential steps of one task" in capsys.readouterr().out
    (figure,) = json.loads(file.read_text(encoding="utf-8"))["figures"]
    assert figure["aim"] == ">= 0.8"
    assert figure["met"] == (figure["ratio"] >= 0.8)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the rig preloads a library")
def test_in_the_rig_every_sync_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert slow_disk.run_python(["-c", SYNC], 50_000) == 0
    assert slow_disk.run_python(["-c", SYNC], 0) == 1


def test_a_figure_says_whether_its_aim_is_reached() -> None:
    fast = compared(
        "s", "w", "u", [Rate(3.0, 1.0), Rate(1.0, 1.0), Rate(2.0, 1.0)], [1.0, 1.0, 1.0], against="a", aim=Aim(2)
    )
    assert (fast.ours, fast.ratio, fast.met) == (2.0, 2.0, True)
    slow = compared("s", "w", "u", [Rate(3.0, 1.0)], [2.0], against="a", aim=Aim(2))
    assert slow.met is False
    alone = compared("s", "w", "u", [Rate(3.0, 1.0)], [], against="a", aim=Aim(2))
    assert alone.met is None
    assert table_of([fast, slow, alone]).row_count == 3
