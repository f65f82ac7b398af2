from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer


@pytest.fixture
def postgres_url(postgres18: PostgresServer) -> Iterator[str]:
    """A database of its own."""
    url = postgres18.create_store()
    yield url
    postgres18.drop_database(url)
