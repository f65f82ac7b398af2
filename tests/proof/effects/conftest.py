"""The databases of these proofs, and the ledger that judges them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.ledger import Ledger
from tests.proof.engine.conftest import new_database, url

__all__ = ["new_database", "url"]


@pytest.fixture(scope="session")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """The world outside, which all tests share."""
    with Ledger.start(tmp_path_factory.mktemp("world") / "ledger.jsonl") as ledger:
        yield ledger
