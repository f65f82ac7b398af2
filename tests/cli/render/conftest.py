"""Fixtures of the tests of what the command shows."""

from __future__ import annotations

import pytest

from tests.cli.render.museum import Museum, open_museum


@pytest.fixture(scope="session")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Museum:
    """A store with a task in every situation. No test changes it."""
    return open_museum(tmp_path_factory.mktemp("museum"))
