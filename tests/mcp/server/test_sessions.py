"""A caller that opens as many sessions as it can shuts out no other."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from holdfast import Holdfast
from holdfast.service.access import CALLER, EVERYTHING, READ_ONLY, Caller
from tests.mcp.support import server_of

OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "tester", "version": "1"},
    },
}
CALLERS = {"reader": Caller("reader", READ_ONLY), "ops": Caller("ops", EVERYTHING), "other": Caller("other", READ_ONLY)}


async def test_sessions_are_counted_for_each_caller(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.mcp.server.MOST_SESSIONS", 3)
    async with server_of(hold).http(["reader", "ops"]) as endpoint:

        async def called(scope: Scope, receive: Receive, send: Send) -> None:
            who = dict(scope["headers"])[b"x-caller"].decode()
            await endpoint({**scope, CALLER: CALLERS[who]}, receive, send)

        transport = httpx2.ASGITransport(app=called)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:

            async def answered(who: str, **headers: str) -> httpx2.Response:
                usual = {"Accept": "application/json, text/event-stream", "x-caller": who}
                return await http.post("/mcp", json=OPENING, headers=usual | headers)

            opened = [await answered("reader") for _ in range(4)]
            assert [one.status_code for one in opened] == [200, 200, 200, HTTPStatus.SERVICE_UNAVAILABLE]
            assert (await answered("ops")).status_code == HTTPStatus.OK
            assert (await answered("other")).status_code == HTTPStatus.OK  # one that was not named has room too
            # A session is its caller's alone, and its end makes room for another one.
            of: Mapping[str, str] = {"mcp-session-id": opened[0].headers["mcp-session-id"]}
            theirs = await http.delete("/mcp", headers={"x-caller": "ops", **of})
            assert theirs.status_code == HTTPStatus.NOT_FOUND
            assert (await answered("reader")).status_code == HTTPStatus.SERVICE_UNAVAILABLE
            mine = await http.delete("/mcp", headers={"x-caller": "reader", **of})
            assert mine.status_code == HTTPStatus.OK
            assert (await answered("reader")).status_code == HTTPStatus.OK
