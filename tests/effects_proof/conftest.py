"""The databases of these proofs, and the ledger that judges them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.ledger import Ledger
from tests.engine_proof.conftest import new_database, url

__all__ = ["ledger", "new_database", "url"]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.start(tmp_path / "ledger.jsonl") as ledger:
        yield ledger
