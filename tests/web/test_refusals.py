"""A refusal at /mcp has a form whose message MCP clients show; anywhere else it is plain JSON."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from holdfast.web.address import resolve
from holdfast.web.answers import MCP
from holdfast.web.application import Application, AsgiEndpoint, GuardedRoute
from holdfast.web.names import HostNames
from holdfast.web.tokens import read_tokens
from tests.web.support import SECRET, bearer

Era = Literal["auto", "legacy"]
BASE = "http://127.0.0.1:8787"


async def break_down(scope: Scope, receive: Receive, send: Send) -> None:
    del send
    await Request(scope, receive).body()
    raise RuntimeError("a defect")


@pytest.fixture
def application() -> Application:
    pages = [
        GuardedRoute(path=MCP, endpoint=AsgiEndpoint(break_down), largest_body=None),
        GuardedRoute(path=f"{MCP}/small", endpoint=AsgiEndpoint(break_down), largest_body=10),
        GuardedRoute(path="/elsewhere", endpoint=AsgiEndpoint(break_down), largest_body=10),
    ]
    tokens = read_tokens({"HOLDFAST_API_TOKEN": SECRET})
    return Application(pages, tokens=tokens, names=HostNames(resolve("127.0.0.1", 8787)))


@asynccontextmanager
async def calling(application: Application, headers: dict[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(application, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers) as http:
        yield http


def leave(application: Application) -> None:
    del application


def stop(application: Application) -> None:
    application.requests.stop()


REFUSED = [
    ("", {}, leave, 401, "a token is missing or wrong; send the header Authorization: Bearer"),
    ("", bearer("x" * 32), leave, 401, "a token is missing or wrong"),
    ("", bearer(SECRET) | {"origin": "https://evil.example"}, leave, 403, "pages of this origin may not call"),
    ("", bearer(SECRET) | {"host": "evil.example"}, leave, 421, "not known by the name in your Host header"),
    ("/", bearer(SECRET), leave, 404, "there is nothing at this path; / says what there is"),
    ("/small", bearer(SECRET), leave, 413, "the request is larger than what is taken here; send less at once"),
    ("", bearer(SECRET), leave, 500, "a defect of the server; its log has the details"),
    ("", bearer(SECRET), stop, 503, "the server is stopping; try again in a moment"),
]


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize(("path", "headers", "before", "status", "words"), REFUSED)
async def test_a_client_is_shown_why(
    application: Application,
    era: Era,
    *,
    path: str,
    headers: dict[str, str],
    before: Callable[[Application], None],
    status: int,
    words: str,
) -> None:
    del status
    before(application)
    async with calling(application, headers) as http:
        with pytest.raises(ExceptionGroup) as refused:
            async with Client(streamable_http_client(f"{BASE}{MCP}{path}", http_client=http), mode=era):
                pass
    assert refused.group_contains(MCPError, match=re.escape(words))


@pytest.mark.parametrize(("path", "headers", "before", "status", "words"), REFUSED)
async def test_the_status_stays_what_it_is(
    application: Application,
    *,
    path: str,
    headers: dict[str, str],
    before: Callable[[Application], None],
    status: int,
    words: str,
) -> None:
    before(application)
    async with calling(application, headers) as http:
        answer = await http.post(f"{MCP}{path}", content=b"more than ten bytes")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert answer.headers.get("retry-after") == ("5" if status == 503 else None)
    said = answer.json()
    assert (said["jsonrpc"], said["id"]) == ("2.0", None)
    assert said["error"]["code"] == (-32603 if status >= 500 else -32600)
    assert words in said["error"]["message"]


async def test_elsewhere_it_is_plain_json(application: Application) -> None:
    async with calling(application, bearer(SECRET)) as http:
        for path, status in (("/elsewhere", 413), ("/mcpx", 404), ("/", 404)):
            answer = await http.post(path, content=b"more than ten bytes")
            assert answer.status_code == status
            assert set(answer.json()) == {"error"}
            assert isinstance(answer.json()["error"], str)
