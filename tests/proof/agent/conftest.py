"""The databases of these proofs, the ledger that judges them, and the endpoint they ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.testing.ledger import Ledger
from tests.proof.agent.endpoint import Endpoint
from tests.proof.agent.mission import SCRIPT
from tests.proof.agent.scene import Scene
from tests.proof.effects.conftest import ledger
from tests.proof.engine.conftest import new_database, url

__all__ = ["ledger", "new_database", "url"]


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The endpoint of the mission, a process of its own that all tests share."""
    with Endpoint.start(SCRIPT, tmp_path_factory.mktemp("endpoint")) as endpoint:
        yield endpoint


@pytest.fixture
async def scene(url: str, ledger: Ledger, tmp_path: Path) -> AsyncIterator[Scene]:
    """One task on an empty database."""
    async with Holdfast(url) as hold:
        yield Scene(hold, url, ledger, tmp_path)
