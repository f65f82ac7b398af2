"""A store of each kind, by its URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.contract.truncating import EmptiedDatabase
from tests.store.postgres.support import execute


@pytest.fixture
def postgres_url(emptied_database: EmptiedDatabase) -> str:
    """A PostgreSQL database with an empty store in it, and none of the tables these tests create."""
    url = emptied_database.empty()
    execute(url, "DROP TABLE IF EXISTS own, guests")
    return url


@pytest.fixture
def urls(tmp_path: Path, postgres_url: str) -> list[str]:
    return ["memory://", f"json:///{tmp_path}/files", f"sqlite:///{tmp_path}/hold.db", postgres_url]
