"""SIGKILL at every Commit of every kind of task, and at random at any other verb: the work always comes to its end.

After each kill, and in the end, the store is inspected: nothing acknowledged is lost or done again, and every result is
right.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.model.worker import POISON_AFTER
from tests.forked_program import ForkedProgram
from tests.proof.engine import nursery
from tests.proof.engine.processes import CLONE
from tests.proof.engine.workload import KINDS

SOAKED_SEEDS = 80
"""Of the many seeds a soak offers: with these, it makes well over a thousand kills."""

PARTS = 5
"""Chaos is cut into as many tests, to run side by side."""

LONGEST = 300.0
"""Seconds one nursery gets; it needs a few."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_commit(url: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kills = run_nursery("boundaries", url, tmp_path, 0, kind, repeat=f"python -m pytest '{request.node.nodeid}'")
    assert kills >= 2 * KINDS[kind]


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.full) for part in range(2, PARTS))])
def test_kills_at_any_verb(
    new_database: Callable[[], str], part: int, seeds: Sequence[int], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    # A run that begins with some seed has it as the first one of the first part.
    first_part = request.node.nodeid.replace(f"-{part}]", "-0]")
    for seed in seeds[:SOAKED_SEEDS][part::PARTS]:
        url = new_database()
        # On PostgreSQL, where the limit of deaths is fixed, few enough that nothing passes for poison.
        kills = 12 if url.startswith("sqlite") else POISON_AFTER + 1
        folder = tmp_path / str(seed)
        folder.mkdir()
        again = f"HOLDFAST_SEED={seed} python -m pytest '{first_part}'"
        assert run_nursery("chaos", url, folder, seed, kills, repeat=again) == kills


def run_nursery(what: str, url: str, folder: Path, *more: object, repeat: str) -> int:
    """Return how many kills it made; if it fails, show what it said and how to repeat it."""
    arguments = (what, url, folder, *more)
    output, errors = folder / "nursery.out", folder / "nursery.err"
    process = ForkedProgram(
        nursery.__name__, *map(str, arguments), folder=CLONE, stdout=output, stderr=errors, own_group=True
    )
    try:
        code = process.wait(LONGEST)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with whatever it forked: the group is its own
        process.wait()
        raise
    assert code == 0, f"{errors.read_text()}\nto repeat it: {repeat}"
    return int(output.read_text())
