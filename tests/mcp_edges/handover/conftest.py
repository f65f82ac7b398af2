from pathlib import Path

import pytest

from tests.handover.conftest import ada, bob, clock, emptied_database, hold, living
from tests.store.contract.truncating import EmptiedDatabase

__all__ = ["ada", "bob", "clock", "emptied_database", "hold", "living"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind; that all four stores agree is tested elsewhere."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hold.db"
    emptied: EmptiedDatabase = request.getfixturevalue("emptied_database")
    return emptied.empty()
