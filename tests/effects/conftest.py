from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.effects.shop import Shop, open_shop


@pytest.fixture
def shop() -> Iterator[Shop]:
    with open_shop() as shop:
        yield shop


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy stands between a test and its own machine."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
