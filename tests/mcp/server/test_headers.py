"""A request of the modern era over HTTP names what it is about in a header too; the two have to agree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HEADER_MISMATCH,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import Receive, Scope, Send

from holdfast import Holdfast, TaskState
from holdfast.mcp.protocol_tasks import EXTENSION
from holdfast.service.access import CALLER, EVERYTHING, Caller
from tests.mcp.support import server_of
from tests.service.handover.support import Outside, task_of

VERSION = MODERN_PROTOCOL_VERSIONS[-1]


@asynccontextmanager
async def over_http(hold: Holdfast) -> AsyncIterator[httpx2.AsyncClient]:
    """Ada, over HTTP, without a network in between."""
    async with server_of(hold).http() as endpoint:

        async def called_by_ada(scope: Scope, receive: Receive, send: Send) -> None:
            await endpoint({**scope, CALLER: Caller("ada", EVERYTHING)}, receive, send)

        transport = httpx2.ASGITransport(app=called_by_ada)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client


async def send(http: httpx2.AsyncClient, method: str, task_id: str, **headers: str) -> dict[str, Any]:
    about = {
        PROTOCOL_VERSION_META_KEY: VERSION,
        CLIENT_INFO_META_KEY: {"name": "tester", "version": "1"},
        CLIENT_CAPABILITIES_META_KEY: {"extensions": {EXTENSION: {}}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": task_id, "_meta": about}}
    usual = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": VERSION, "Mcp-Method": method}
    answer = await http.post("/mcp", json=body, headers=usual | headers)
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_header_that_names_another_task_is_refused(hold: Holdfast, method: str) -> None:
    ada = Outside(hold, "ada")
    task, other = await ada.offer(), await ada.offer("other")
    async with over_http(hold) as http:
        for named in (other.id, "nowhere", task.id.upper(), ""):
            refused = await send(http, method, task.id, **{"Mcp-Name": named})
            assert refused["error"]["code"] == HEADER_MISMATCH
            assert "names another task than the body; send the same id in both" in refused["error"]["message"]
    assert {(await task_of(hold, one)).state for one in (task.id, other.id)} == {TaskState.PENDING}


async def test_one_that_names_this_task_or_none_is_served(hold: Holdfast) -> None:
    task = await Outside(hold, "ada").offer()
    async with over_http(hold) as http:
        for headers in ({"Mcp-Name": task.id}, {}):
            answer = await send(http, "tasks/get", task.id, **headers)
            assert (answer["result"]["taskId"], answer["result"]["status"]) == (task.id, "working")
        await send(http, "tasks/cancel", task.id, **{"Mcp-Name": task.id})
    assert (await task_of(hold, task.id)).state is TaskState.CANCELLED
