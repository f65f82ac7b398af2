"""Which requests are let in; and what an answer carries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.service.access import CALLER
from holdfast.web.address import resolve
from holdfast.web.application import LARGEST_BODY, Application, AsgiEndpoint, GuardedRoute
from holdfast.web.guard import RouteAccess
from holdfast.web.names import HostNames
from holdfast.web.tokens import read_tokens
from tests.web.support import OTHER, SECRET, bearer

ENVIRONMENT = {"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_API_TOKEN_EYES": f"read:{OTHER}"}


async def whoami(request: Request) -> JSONResponse:
    caller = request.scope.get(CALLER)
    return JSONResponse(None if caller is None else caller.name)


async def swallow(scope: Scope, receive: Receive, send: Send) -> None:
    response = JSONResponse(len(await Request(scope, receive).body()))
    await response(scope, receive, send)


async def break_down(request: Request) -> Response:
    raise RuntimeError(f"a defect at {request.url.path}")


async def stream(request: Request) -> StreamingResponse:
    del request

    async def parts() -> AsyncIterator[str]:
        yield "first"
        await asyncio.sleep(0)
        yield "second"

    headers = {"cache-control": "no-cache, no-transform"}
    return StreamingResponse(parts(), media_type="text/event-stream", headers=headers)


async def cached(request: Request) -> PlainTextResponse:
    del request
    return PlainTextResponse("", headers={"cache-control": "no-store, private", "x-content-type-options": "odd"})


PAGES = [
    GuardedRoute(path="/closed", endpoint=whoami),
    GuardedRoute(path="/known", endpoint=whoami, access=RouteAccess.KNOWN_HOST),
    GuardedRoute(path="/open", endpoint=whoami, access=RouteAccess.OPEN),
    GuardedRoute(path="/body", endpoint=AsgiEndpoint(swallow)),
    GuardedRoute(path="/break", endpoint=break_down),
    GuardedRoute(path="/stream", endpoint=stream),
    GuardedRoute(path="/cached", endpoint=cached),
]


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    names = HostNames(resolve("127.0.0.1", 8787), ["holdfast.example.com"])
    served = Application(PAGES, tokens=read_tokens(ENVIRONMENT), names=names)
    transport = httpx2.ASGITransport(served, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/closed", {}, 401),
        ("/closed", bearer(SECRET), 200),
        ("/closed", {"authorization": f"bearer  {SECRET}"}, 200),
        ("/closed", bearer("x" * 32), 401),
        ("/closed", bearer(""), 401),
        ("/closed", {"authorization": SECRET}, 401),
        ("/closed", {"authorization": f"Basic {SECRET}"}, 401),
        ("/closed?token={SECRET}&access_token={SECRET}", {}, 401),
        ("/closed", bearer(SECRET) | {"host": "evil.example"}, 421),
        ("/closed", bearer(SECRET) | {"host": "evil.example:8787"}, 421),
        ("/closed", bearer(SECRET) | {"host": ""}, 421),
        ("/closed", bearer(SECRET) | {"host": "holdfast.example.com"}, 200),
        ("/closed", bearer(SECRET) | {"origin": "http://127.0.0.1:8787"}, 200),
        ("/closed", bearer(SECRET) | {"origin": "https://holdfast.example.com"}, 200),
        ("/closed", bearer(SECRET) | {"origin": "https://evil.example"}, 403),
        ("/closed", bearer(SECRET) | {"origin": "null"}, 403),
        ("/closed", {"host": "evil.example", "origin": "https://evil.example"}, 421),
        ("/known", {}, 200),
        ("/known", {"host": "evil.example"}, 421),
        ("/known", {"origin": "https://evil.example"}, 403),
        ("/open", {"host": "10.1.2.3:8787"}, 200),
        ("/open", {"origin": "https://evil.example"}, 200),
        ("/open/", {}, 401),
        ("//open", {}, 401),
        ("/nowhere", {}, 401),
        ("/nowhere", bearer(SECRET), 404),
        ("/closed/", bearer(SECRET), 404),
        ("/OPEN", {}, 401),
    ],
)
async def test_who_is_let_in(client: httpx2.AsyncClient, path: str, headers: dict[str, str], status: int) -> None:
    answer = await client.get(path.replace("{SECRET}", SECRET), headers=headers)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    if status >= 400:
        assert set(answer.json()) == {"error"}
        assert "evil" not in answer.text
        assert SECRET not in answer.text


@pytest.mark.parametrize("name", ["host", "authorization", "origin"])
async def test_a_header_that_comes_twice_is_not_believed(client: httpx2.AsyncClient, name: str) -> None:
    good = {"host": "127.0.0.1:8787", "authorization": f"Bearer {SECRET}", "origin": "http://127.0.0.1:8787"}
    bad = {"host": "evil.example", "authorization": "Bearer x", "origin": "https://evil.example"}
    for second in (good[name], bad[name]):
        answer = await client.get("/closed", headers=[*good.items(), (name, second)])
        if name == "origin" and second == good[name]:
            assert answer.status_code == 200
        else:
            assert answer.status_code == {"host": 421, "authorization": 401, "origin": 403}[name]


async def test_a_request_carries_its_caller(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/closed", headers=bearer(SECRET))).json() == "api"
    assert (await client.get("/closed", headers=bearer(OTHER))).json() == "eyes"
    assert (await client.get("/open", headers=bearer(OTHER))).json() is None


@pytest.mark.parametrize("size", [LARGEST_BODY, LARGEST_BODY + 1])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_has_a_limit(client: httpx2.AsyncClient, size: int, declared: bool) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"x" * (size - 1)
        yield b"x"

    answer = await client.post("/body", headers=bearer(SECRET), content=b"x" * size if declared else parts())
    assert answer.status_code == (200 if size == LARGEST_BODY else 413)


async def test_a_stream_keeps_what_it_tells_proxies(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/stream", headers=bearer(SECRET))
    assert answer.text == "firstsecond"
    assert answer.headers["cache-control"] == "no-cache, no-transform, no-store"


async def test_no_header_comes_twice(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/cached", headers=bearer(SECRET))
    assert answer.headers.get_list("cache-control") == ["no-store"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


async def test_a_defect_is_logged_and_not_shown_to_the_caller(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await client.get(f"/break?secret={OTHER}", headers=bearer(SECRET))
    assert (answer.status_code, answer.json()) == (500, {"error": "a defect of the server; its log has the details"})
    assert answer.headers["cache-control"] == "no-store"
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "a defect in answering GET /break" in record.getMessage()
    assert OTHER not in caplog.text
    assert SECRET not in caplog.text


async def test_a_client_cannot_write_lines_of_the_log(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast.web")
    forged = "\n2026-11-15 12:00:00 CRITICAL the database is gone"
    for headers, path in (({}, "/nowhere"), (bearer(SECRET), "/break")):
        await client.get(f"{path}{forged.replace(chr(10), '%0a')}", headers=headers)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("holdfast.web")]
    assert [line.split(":")[0] for line in said][:1] == [
        "GET /nowhere%0A2026-11-15%2012%3A00%3A00%20CRITICAL%20the%20database%20is%20gone"
    ]
    assert not any("\n" in line for line in said)
