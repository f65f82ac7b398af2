"""SIGKILL, wherever it strikes: every transaction is there exactly once, in a table that would take it twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.engine.steps.transaction import lives
from tests.postgres_server import PostgresServer
from tests.proof.engine.processes import CLONE

KILLS = 8
SOAKED_SEEDS = 60
LONGEST = 300.0


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], str]:
    """Makes empty databases, and returns their URLs."""
    if request.param == "sqlite":
        return lambda seed: f"sqlite:///{tmp_path}/hold-{seed}.db"
    server: PostgresServer = request.getfixturevalue("postgres18")
    return lambda seed: server.create_store()  # noqa: ARG005


def test_exactly_once(new_database: Callable[[int], str], seeds: Sequence[int], request: pytest.FixtureRequest) -> None:
    for seed in seeds[:SOAKED_SEEDS] if SOAK else seeds[:1]:
        again = f"HOLDFAST_SEED={seed} python -m pytest '{request.node.nodeid}'"
        kills, *points = run_lives(new_database(seed), seed, repeat=again)
        assert int(kills) == KILLS
        assert set(points) == set(lives.POINTS)  # each of them struck


def run_lives(url: str, seed: int, *, repeat: str) -> list[str]:
    """Return what was killed; if something was not as it should be, show how to repeat it."""
    process = subprocess.Popen(
        [sys.executable, "-m", lives.__name__, url, str(seed), str(KILLS)],
        cwd=CLONE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=LONGEST)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with whatever it forked: the group is its own
        process.communicate()
        raise
    assert process.returncode == 0, f"{errors}\nto repeat it: {repeat}"
    return output.splitlines()
