"""The real MCP endpoint behind the guard: clients of both eras, their rights, and how their streams end."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.cli.project.support import PATIENCE
from tests.web.support import OTHER, SECRET, Served, bearer, make_store, serving
from tests.web.test_stopping import SECONDS

PROGRAM = "holdfast.__main__"
TOKENS = {"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_API_TOKEN_EYES": f"read:{OTHER}"}
Era = Literal["auto", "legacy"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return make_store(tmp_path)


@asynccontextmanager
async def connected(served: Served, token: str, era: Era) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=bearer(token), timeout=PATIENCE) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http), mode=era) as client,
    ):
        yield client


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_client_gets_what_its_token_allows(tmp_path: Path, url: str, era: Era) -> None:
    with serving(tmp_path, url, program=PROGRAM, **TOKENS) as served:
        async with connected(served, SECRET, era) as client:
            mine = {tool.name for tool in (await client.list_tools()).tools}
            answer = await client.call_tool("list_tasks", {})
            assert not answer.is_error, answer.content
        async with connected(served, OTHER, era) as client:
            theirs = {tool.name for tool in (await client.list_tools()).tools}
        assert "submit_task" in mine - theirs
        assert "get_task" in mine & theirs
        assert served.stop(signal.SIGTERM) == 0
        assert SECRET not in served.said
        assert OTHER not in served.said
        assert "Traceback" not in served.said


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_client_is_shown_why_it_is_refused(tmp_path: Path, url: str, era: Era) -> None:
    with serving(tmp_path, url, program=PROGRAM, **TOKENS) as served:
        with pytest.raises(ExceptionGroup) as refused:
            async with connected(served, "x" * 32, era):
                pass
        assert refused.group_contains(MCPError, match="a token is missing or wrong")
        async with connected(served, SECRET, era) as client:
            with pytest.raises(MCPError, match="larger than what is taken here; send less at once"):
                await client.call_tool("submit_task", {"goal": "x" * 5 * 1024**2})
        assert "defect" not in served.said


async def test_calls_are_not_logged_unless_asked_for(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, program=PROGRAM, **TOKENS) as served:
        async with connected(served, OTHER, "auto") as client:
            answer = await client.call_tool("submit_task", {"goal": "what the model wrote"})
            assert answer.is_error
        assert served.stop(signal.SIGTERM) == 0
        assert served.said.splitlines()[2:] == ["holdfast: SIGTERM: stopping"]


async def test_a_large_body_is_the_endpoints_own_to_refuse(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, program=PROGRAM, **TOKENS) as served:
        for size, refused in ((1024**2, False), (5 * 1024**2, True)):
            headers = bearer(SECRET) | {"accept": "application/json, text/event-stream"}
            headers |= {"content-type": "application/json"}
            answer = httpx2.post(f"{served.url}/mcp", content=b"x" * size, headers=headers, timeout=PATIENCE)
            assert (answer.status_code == 413) is refused, answer.text


def test_an_open_stream_of_a_session_does_not_hold_up_the_end(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, program=PROGRAM, **TOKENS) as served, httpx2.Client(timeout=PATIENCE) as client:
        target = f"{served.url}/mcp"
        begin = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        headers = bearer(SECRET) | {"accept": "application/json, text/event-stream"}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
        answer = client.post(target, json=request, headers=headers)
        headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
        with client.stream("GET", target, headers=headers) as stream:
            assert (stream.status_code, stream.headers["content-type"]) == (200, "text/event-stream")
            began = time.monotonic()
            assert served.stop(signal.SIGTERM) == 0
            assert time.monotonic() - began < SECONDS
            assert "data" not in stream.read().decode(), "it ends, and is not cut off"
        assert "Traceback" not in served.said


async def test_an_open_subscription_is_closed_in_good_order(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, program=PROGRAM, **TOKENS) as served:
        async with (
            asyncio.timeout(PATIENCE),
            connected(served, SECRET, "auto") as client,
            client.listen(resource_subscriptions=["task://queue"]) as updates,
        ):
            began = time.monotonic()
            assert await asyncio.to_thread(served.stop, signal.SIGTERM) == 0
            assert time.monotonic() - began < SECONDS
            assert [update async for update in updates] == [], "a subscription that is lost would raise"
        assert "Traceback" not in served.said
