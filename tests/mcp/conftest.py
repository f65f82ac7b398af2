import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.client import ConnectMode

from holdfast import Holdfast
from tests.mcp.support import ERAS, connected
from tests.ready_schema import new_file


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{new_file(tmp_path / 'hold.db')}"


@pytest.fixture
async def hold(url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(url) as hold:
        yield hold


@pytest.fixture
async def client(hold: Holdfast) -> AsyncIterator[Client]:
    """Ada, who has every scope."""
    ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def keep() -> None:
        async with connected(hold) as client:
            ready.set_result(client)
            await leave.wait()

    keeping = asyncio.create_task(keep())  # a client is left by the task that entered it; a fixture has two
    either: list[asyncio.Future[Any]] = [ready, keeping]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await keeping  # raises what kept it from connecting
    yield ready.result()
    leave.set()
    await keeping


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> ConnectMode:
    return str(request.param)
