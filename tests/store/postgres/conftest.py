"""A database of its own for each test, on each version of the server."""

from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.store.postgres import PostgresStore
from tests.postgres_server import PostgresServer
from tests.stores import POSTGRES_VERSIONS


@pytest.fixture(params=POSTGRES_VERSIONS)
def server(request: pytest.FixtureRequest) -> PostgresServer:
    server: PostgresServer = request.getfixturevalue(f"postgres{request.param}")
    return server


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    """A database with an empty store in it."""
    url = server.create_store()
    yield url
    server.drop_database(url)


@pytest.fixture
def bare_url(server: PostgresServer) -> Iterator[str]:
    """A database in which nothing is set up yet."""
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(url) as store:
        yield store
