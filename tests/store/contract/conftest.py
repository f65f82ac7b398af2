from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer
from tests.store.contract.truncating import EmptiedDatabase


@pytest.fixture(scope="session")
def database16(postgres16: PostgresServer) -> Iterator[EmptiedDatabase]:
    yield from _database(postgres16)


@pytest.fixture(scope="session")
def database18(postgres18: PostgresServer) -> Iterator[EmptiedDatabase]:
    yield from _database(postgres18)


def _database(server: PostgresServer) -> Iterator[EmptiedDatabase]:
    database = EmptiedDatabase(server)
    yield database
    database.close()


A_PART_EVERY_DAY = ("TestMemory", "TestJson", "TestPostgres16")
"""Stores that share their code with one that passes the whole contract every day."""

WHOLE_TOPICS = ("ClosingContract", "FidelityContract", "NamesContract", "ReopenContract", "SharedContract")
"""What is about the files and the servers themselves."""

OF_EVERY_TOPIC = 3
"""So many tests of each other topic: enough for every statement to be run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.cls is not None and item.cls.__name__ in A_PART_EVERY_DAY:
            topic = next(base for base in item.cls.__mro__ if item.originalname in vars(base))
            tests = [name for name in vars(topic) if name.startswith("test_")]
            if topic.__name__ not in WHOLE_TOPICS and tests.index(item.originalname) >= OF_EVERY_TOPIC:
                item.add_marker(pytest.mark.full)
