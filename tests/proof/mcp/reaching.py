"""Reaching a server as clients do: over stdio with a process of its own, or over HTTP with one that many share."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.client import ConnectMode
from mcp.client.streamable_http import streamable_http_client

from tests.forked_program import ForkedProgram
from tests.forkserver import preload
from tests.proof.engine.conditions import PATIENCE, eventually

preload("holdfast.cli.application", "holdfast.store.sqlite", "holdfast.mcp.server", "holdfast.web.server_process")

TOKEN = "a-token-that-only-the-tests-know"  # noqa: S105
_LISTENS = re.compile(r"MCP is at (http://\S+/mcp)")


@dataclass(frozen=True)
class Reached:
    """How to reach a server: a store for one over stdio, or the address of one over HTTP."""

    url: str
    """Of the store."""
    address: str | None = None
    """Of the server over HTTP; None: each client starts its own over stdio."""
    arguments: Sequence[str] = ()
    """Of a server over stdio."""

    @property
    def words(self) -> list[str]:
        """What another process needs to reach it too."""
        return [self.url, self.address or "-"]


@asynccontextmanager
async def client_of(
    reached: Reached,
    mode: ConnectMode,
    *,
    name: str = "tester",
    token: str = TOKEN,
    **options: Any,  # noqa: ANN401 - of the client
) -> AsyncIterator[Client]:
    """Connect as an MCP client does."""
    if reached.address is None:
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "holdfast", "mcp", "--name", name, "--database-url", reached.url, *reached.arguments],
            env=_environment(),
        )
        async with Client(command, mode=mode, **options) as client:
            yield client
        return
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        transport = streamable_http_client(reached.address, http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


@asynccontextmanager
async def serving(url: str, folder: Path, **tokens: str) -> AsyncIterator[Reached]:
    """Run ``holdfast serve`` on a free port."""
    log = folder / "serve.log"
    environment = _environment() | {"HOLDFAST_API_TOKEN": TOKEN} | tokens
    log.touch()
    command = ("serve", "--port", "0", "--database-url", url)
    process = ForkedProgram(
        "holdfast.__main__", *command, folder=folder, stdout=log, stderr=log, environment=environment
    )
    try:
        await eventually("it listens", lambda: bool(_LISTENS.search(log.read_text())) or process.poll() is not None)
        found = _LISTENS.search(log.read_text())
        assert found is not None, log.read_text()
        yield Reached(url, found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
