"""Ten thousand tasks at once in one worker, and a hundred thousand that wait: what each of them costs in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.proof.engine import many_tasks_process
from tests.proof.engine.processes import CLONE

RUNNING = 10_000
WAITING = 100_000 if SOAK else 5_000

KILOBYTE = 1024


def measure(what: str, folder: Path, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", many_tasks_process.__name__, what, f"sqlite:///{folder}/agents.db", str(count)]
    done = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    print(f"{what}: {done.stdout}")  # noqa: T201
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def test_ten_thousand_tasks_run_at_once(tmp_path: Path) -> None:
    measured = measure("running", tmp_path, RUNNING)
    assert measured["at_once"] == RUNNING
    assert measured["bytes_each"] < 12 * KILOBYTE


@pytest.mark.usefixtures("seeds")  # a soak makes it long
def test_suspended_tasks_leave_nothing_behind_in_their_worker(tmp_path: Path) -> None:
    measured = measure("waiting", tmp_path, WAITING)
    assert measured["at_once"] == WAITING
    assert measured["blocks_each"] < 1
    if SOAK:  # a few thousand do not yet fill SQLite's caches, which then stop growing
        assert measured["bytes_each"] < 300
