import pytest


@pytest.fixture
def url(database_url: str) -> str:
    """An empty database of each kind; that all four stores agree is tested elsewhere."""
    return database_url
