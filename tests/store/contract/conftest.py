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
