import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.stores import MEMORY, empty_store


@pytest.fixture(params=[MEMORY, "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store, in the process, in a file and in a server."""
    return empty_store(request.param, request, tmp_path)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Whatever a test does, no thread of it goes on afterwards."""
    before = {*threading.enumerate()}
    yield
    give_up_at = time.monotonic() + 60
    while left := [thread for thread in {*threading.enumerate()} - before if "holdfast" in thread.name]:
        assert time.monotonic() < give_up_at, left
        time.sleep(0.01)


@pytest.fixture
def quick() -> Holdfast:
    return Holdfast("memory://")
