"""A server with a stocked store, and the proxy in front of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project.support import clean_environment
from tests.cli.support import until
from tests.mcp.conformance.expectations import names
from tests.mcp.conformance.proxy import Proxy, running
from tests.mcp.conformance.stock import Stock, fill
from tests.web.support import SECRET, Served, serving

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return asyncio.run(fill(f"sqlite:///{tmp_path_factory.mktemp('stock')}/hold.db"))


@pytest.fixture(scope="session")
def running_server(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, stock.url, program="holdfast.__main__", HOLDFAST_API_TOKEN=SECRET) as served:
        yield served


@pytest.fixture
def server(running_server: Served) -> Iterator[Served]:
    """The server. It may refuse what a test asks of it, and may not fail."""
    before = len(running_server.said)
    yield running_server
    said = running_server.said[before:]
    assert "Traceback" not in said, said


@pytest.fixture(scope="session")
def worker(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A worker for what is submitted by name."""
    words = tmp_path_factory.mktemp("worker") / "worker.txt"
    command = [sys.executable, "-m", "holdfast", "worker", "application:hold"]
    environment = clean_environment(HOLDFAST_DATABASE_URL=stock.url)
    with (
        words.open("w", encoding="utf-8") as file,
        subprocess.Popen(command, stderr=file, text=True, cwd=FOLDER, env=environment) as process,
    ):
        try:
            until(lambda: "works on" in words.read_text(encoding="utf-8"), process)
            yield
        finally:
            process.kill()


@pytest.fixture(scope="session")
def proxy(running_server: Served, stock: Stock) -> Proxy:
    return Proxy(running_server.url, SECRET, names(stock))


@pytest.fixture(scope="session")
def proxied(proxy: Proxy) -> Iterator[str]:
    """The address at which the suites find the server."""
    with running(proxy) as address:
        yield address
