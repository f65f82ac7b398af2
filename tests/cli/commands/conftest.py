from pathlib import Path

import pytest


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of its own for each test."""
    return f"sqlite:///{tmp_path}/hold.db"
