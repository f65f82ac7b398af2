"""Every store against the oracle: random work, every answer compared, and everything stored after every step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import hypothesis
import pytest
from hypothesis.stateful import get_state_machine_test

from holdfast.model.clock import ManualClock
from holdfast.store.jsonfile import JsonStore
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite import SqliteStore
from tests.conftest import SOAK
from tests.everyday import FULL
from tests.postgres_server import PostgresServer
from tests.store.contract.truncating import SCHEMA, EmptiedDatabase
from tests.store.stateful.machine import StoreMachine

SETTINGS = hypothesis.settings(
    max_examples=1000 if SOAK else 20 if FULL else 10,
    stateful_step_count=80 if SOAK else 40,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)

Check = Callable[[Callable[[ManualClock], SimpleInterface]], None]


@pytest.fixture
def check(seeds: Sequence[int]) -> Check:
    """Hold the stores that a function makes to the oracle. Everyday runs repeat themselves, soaks begin at a seed."""

    def run(make_store: Callable[[ManualClock], SimpleInterface]) -> None:
        test = get_state_machine_test(lambda: StoreMachine(make_store), settings=SETTINGS)  # type: ignore[arg-type]
        if SOAK:
            test = hypothesis.seed(seeds[0])(test)
        test()

    return run


@pytest.mark.full(instead="tests/store/stateful/test_stateful.py")
def test_memory(check: Check) -> None:
    check(lambda clock: MemoryStore(clock=clock))


@pytest.mark.full(instead="tests/store/stateful/test_stateful.py")
def test_json(check: Check, tmp_path: Path) -> None:
    numbers = itertools.count()
    check(lambda clock: JsonStore(tmp_path / f"store-{next(numbers)}", clock=clock))


def test_sqlite(check: Check, tmp_path: Path) -> None:
    numbers = itertools.count()
    check(lambda clock: SqliteStore(tmp_path / f"store-{next(numbers)}.db", clock=clock))


def test_postgres(check: Check, postgres18: PostgresServer) -> None:
    database = EmptiedDatabase(postgres18)
    check(lambda clock: PostgresStore(database.empty(), schema=SCHEMA, clock=clock))
    database.close()
