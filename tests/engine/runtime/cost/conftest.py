"""A PostgreSQL database of its own for each test."""

from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer


@pytest.fixture
def postgres_url(postgres18: PostgresServer) -> Iterator[str]:
    url = postgres18.create_store()
    yield url
    postgres18.drop_database(url)
