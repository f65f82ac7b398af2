"""The public contract suite on every store, and on the model that the stateful test compares them with."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.model.clock import ManualClock
from holdfast.store.base import StateStore
from holdfast.store.jsonfile import JsonStore
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.contract import TOPICS, ReopenContract, SharedContract, StoreContract
from tests.ready_schema import new_file
from tests.store.contract.truncating import SCHEMA, EmptiedDatabase
from tests.store.stateful.oracle_store import OracleStore

MakeStore = Callable[[], StateStore]


class TestOracle(StoreContract):
    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[StateStore]:
        async with OracleStore(clock) as store:
            yield store


class TestMemory(StoreContract):
    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[StateStore]:
        async with MemoryStore(clock=clock) as store:
            yield store


class _OnDisk(StoreContract, ReopenContract):
    @pytest.fixture
    async def store(self, another_store: MakeStore) -> AsyncIterator[StateStore]:
        async with another_store() as store:
            yield store


class TestJson(_OnDisk):
    @pytest.fixture
    def another_store(self, clock: ManualClock, tmp_path: Path) -> MakeStore:
        return lambda: JsonStore(tmp_path / "store", clock=clock)


class TestSqlite(_OnDisk, SharedContract):
    @pytest.fixture
    def another_store(self, clock: ManualClock, tmp_path: Path) -> MakeStore:
        path = new_file(tmp_path / "store.db")
        return lambda: SqliteStore(path, clock=clock)


class _OnPostgres(_OnDisk, SharedContract):
    leases_on_boot_clock = False


class TestPostgres16(_OnPostgres):
    @pytest.fixture
    def another_store(self, clock: ManualClock, database16: EmptiedDatabase) -> MakeStore:
        url = database16.empty()
        return lambda: PostgresStore(url, schema=SCHEMA, clock=clock)


class TestPostgres18(_OnPostgres):
    @pytest.fixture
    def another_store(self, clock: ManualClock, database18: EmptiedDatabase) -> MakeStore:
        url = database18.empty()
        return lambda: PostgresStore(url, schema=SCHEMA, clock=clock)


def test_no_two_topics_have_a_test_of_the_same_name() -> None:
    """One of them would silently hide the other in StoreContract."""
    topics = (*TOPICS, ReopenContract, SharedContract)
    names = Counter(name for topic in topics for name in vars(topic) if name.startswith("test_"))
    assert [name for name, uses in names.items() if uses > 1] == []
