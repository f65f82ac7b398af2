"""A client on stdio that writes and does not read: its requests are not read ahead without end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from holdfast import Holdfast
from holdfast.mcp import pace, server
from holdfast.mcp.pace import MOST_UNDER_WAY, Pace
from holdfast.mcp.server import McpServer
from holdfast.service.access import EVERYTHING, Caller
from holdfast.service.service import Service
from tests.engine.support import settle, until

PATIENCE = 60.0
MANY = 3 * MOST_UNDER_WAY


def request(number: int) -> SessionMessage:
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="ping"))


async def test_a_client_that_never_reads_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    to_server, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, from_server = anyio.create_memory_object_stream[Any](0)

    @asynccontextmanager
    async def pipes() -> AsyncIterator[tuple[Any, Any]]:
        yield incoming, outgoing

    monkeypatch.setattr(server, "stdio_server", pipes)
    taken = 0

    async def write() -> None:
        nonlocal taken
        for number in range(MANY):
            await to_server.send(request(number))
            taken += 1

    async with Holdfast("memory://") as hold:
        serving = asyncio.create_task(McpServer(Service(hold), caller=Caller("me", EVERYTHING)).serve_stdio())
        writing = asyncio.create_task(write())
        await until(lambda: taken > MOST_UNDER_WAY, patience=PATIENCE)
        await settle(1_000)
        assert taken == MOST_UNDER_WAY + 1  # the last of them waits here for room
        answered: set[int] = set()
        async with asyncio.timeout(PATIENCE):
            while len(answered) < MANY:
                answered.add((await from_server.receive()).message.id)
            await writing
            to_server.close()
            await serving
        from_server.close()


async def test_what_is_cancelled_gets_no_answer_and_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MOST_UNDER_WAY", 2)
    counted = Pace()
    await counted.note_read(request(1))
    await counted.note_read(request(2))
    stream = JSONRPCRequest(jsonrpc="2.0", id=3, method="subscriptions/listen", params={})
    await counted.note_read(SessionMessage(stream))  # it has no end, and does not count
    waiting = asyncio.create_task(counted.note_read(request(4)))
    await settle()
    assert not waiting.done()
    said = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 1})
    await counted.note_read(SessionMessage(said))
    async with asyncio.timeout(PATIENCE):
        await waiting


def test_a_client_that_left_before_the_last_answer_is_not_an_error(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "mcp", "--database-url", f"sqlite:///{tmp_path}/agents.db"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with started as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        assert serving.stderr is not None
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "short", "version": "1"}}
        for number, (method, params) in enumerate([("initialize", hello), ("tools/list", {})]):
            asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            serving.stdin.write(json.dumps(asked).encode() + b"\n")
            serving.stdin.flush()
            if method == "initialize":
                assert b'"result"' in serving.stdout.readline()
                serving.stdout.close()
        serving.stdin.close()
        said = serving.stderr.read().decode()
        assert serving.wait(PATIENCE) == 0, said
    assert "defect" not in said
