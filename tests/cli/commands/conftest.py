from pathlib import Path

import pytest

from tests.ready_schema import new_file


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of its own for each test."""
    return f"sqlite:///{new_file(tmp_path / 'hold.db')}"
