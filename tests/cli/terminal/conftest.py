from pathlib import Path

import pytest

from tests.cli.render.museum import Museum, open_museum


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of its own for each test."""
    return f"sqlite:///{tmp_path}/hold.db"


@pytest.fixture(scope="session")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Museum:
    """A store with a task in every situation. No test changes it."""
    return open_museum(tmp_path_factory.mktemp("museum"))
