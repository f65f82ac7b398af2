"""Several agents outside on one task, on every store: at most one holds it, no step is lost, no stale holder writes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import hypothesis
import pytest
from hypothesis.stateful import get_state_machine_test

from tests.conftest import SOAK
from tests.postgres_server import PostgresServer
from tests.service.handover.machine import HandoverMachine
from tests.store.contract.truncating import EmptiedDatabase

SETTINGS = hypothesis.settings(
    max_examples=500 if SOAK else 20,
    stateful_step_count=60 if SOAK else 30,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)

Check = Callable[[Callable[[], str]], None]


@pytest.fixture
def check(seeds: Sequence[int]) -> Check:
    """Run agents on the stores that a function names. Everyday runs repeat themselves, soaks begin at a seed."""

    def run(new_url: Callable[[], str]) -> None:
        test = get_state_machine_test(lambda: HandoverMachine(new_url()), settings=SETTINGS)  # type: ignore[arg-type]
        if SOAK:
            test = hypothesis.seed(seeds[0])(test)
        test()

    return run


@pytest.mark.full(instead="tests/service/handover/test_stateful.py")
def test_memory(check: Check) -> None:
    check(lambda: "memory://")


@pytest.mark.full(instead="tests/service/handover/test_stateful.py")
def test_json(check: Check, tmp_path: Path) -> None:
    numbers = itertools.count()
    check(lambda: f"json:///{tmp_path}/store-{next(numbers)}")


def test_sqlite(check: Check, tmp_path: Path) -> None:
    numbers = itertools.count()
    check(lambda: f"sqlite:///{tmp_path}/store-{next(numbers)}.db")


def test_postgres(check: Check, postgres18: PostgresServer) -> None:
    database = EmptiedDatabase(postgres18)
    check(database.empty)
    database.close()
