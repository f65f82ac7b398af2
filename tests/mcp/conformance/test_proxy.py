"""The proxy itself: it must not change a suite's verdict."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.mcp.conformance.proxy import Names, Proxy, running, serving

NAMES: Names = {
    "test_tool": lambda params: {"name": "ours", "arguments": {"a": params["arguments"]["b"]}},
    "test://text": lambda _: {"uri": "task://queue"},
}


async def echo(request: Request) -> Response:
    """Answer with what arrived, as JSON or as a stream of events."""
    body = await request.body()
    seen = {"method": request.method, "headers": dict(request.headers), "body": body.decode()}
    message = {"jsonrpc": "2.0", "id": json.loads(body or b"{}").get("id"), "result": seen}
    if request.headers.get("accept") != "text/event-stream":
        return JSONResponse(message, status_code=418)

    async def events() -> AsyncIterator[str]:
        yield 'event: message\ndata: {"jsonrpc": "2.0", "method": "notifications/progress"}\n\n'
        yield f"event: message\ndata: {json.dumps(message)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with serving(Starlette(routes=[Route("/mcp", echo, methods=["GET", "POST", "DELETE"])])) as address:
        yield address


@pytest.fixture
def proxy(upstream: str) -> Proxy:
    return Proxy(upstream, "secret", NAMES)


@pytest.fixture
def client(proxy: Proxy) -> Iterator[httpx2.Client]:
    with running(proxy) as address, httpx2.Client(base_url=address, trust_env=False, timeout=60) as client:
        yield client


def seen(answer: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["result"]
    return found


def test_the_token_is_added_and_the_rest_is_left_alone(client: httpx2.Client) -> None:
    body = '{"id": 1,   "method": "tools/call", "params": {"name": "theirs"}}'
    headers = {"host": "evil.example.com", "origin": "http://evil.example.com", "mcp-name": "theirs"}
    answer = client.post("/mcp", content=body, headers=headers)
    arrived = seen(answer)
    assert answer.status_code == 418
    assert arrived["headers"]["authorization"] == "Bearer secret"
    assert arrived["headers"].items() >= headers.items()
    assert arrived["body"] == body


@pytest.mark.parametrize(
    ("params", "translated"),
    [
        (
            {"name": "test_tool", "arguments": {"b": 1}, "_meta": {}},
            {"name": "ours", "arguments": {"a": 1}, "_meta": {}},
        ),
        ({"uri": "test://text"}, {"uri": "task://queue"}),
    ],
)
def test_a_name_of_the_suite_becomes_one_of_ours(
    client: httpx2.Client, proxy: Proxy, params: dict[str, Any], translated: dict[str, Any]
) -> None:
    theirs = params.get("name") or params["uri"]
    message = {"id": 7, "method": "some/method"}
    arrived = seen(client.post("/mcp", json=message | {"params": params}, headers={"mcp-name": theirs}))
    assert json.loads(arrived["body"]) == message | {"params": translated}
    assert arrived["headers"]["mcp-name"] == (translated.get("name") or translated["uri"])
    [exchange] = proxy.exchanges
    assert exchange.meant == theirs
    assert exchange.asked["params"] == translated


def test_a_completion_is_translated_by_what_it_refers_to(upstream: str) -> None:
    ours = {"ref": {"type": "ref/prompt", "name": "ours"}, "argument": {"name": "task_id"}}
    proxy = Proxy(upstream, "secret", {"test_prompt": lambda _: ours})
    params = {"ref": {"type": "ref/prompt", "name": "test_prompt"}, "argument": {"name": "arg1", "value": "x"}}
    with running(proxy) as address, httpx2.Client(base_url=address, trust_env=False, timeout=60) as client:
        arrived = seen(client.post("/mcp", json={"id": 1, "method": "completion/complete", "params": params}))
    assert json.loads(arrived["body"])["params"] == ours


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_the_answer_is_found_in_a_body_and_in_a_stream(client: httpx2.Client, proxy: Proxy, accept: str) -> None:
    client.post("/mcp", json={"id": 3, "method": "ping"}, headers={"accept": accept})
    [exchange] = proxy.exchanges
    assert exchange.meant is None
    assert exchange.answer is not None
    assert exchange.answer["id"] == 3
    assert exchange.answer["result"]["method"] == "POST"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_requests_without_a_message_pass(client: httpx2.Client, proxy: Proxy, method: str) -> None:
    assert seen(client.request(method, "/mcp"))["method"] == method
    assert proxy.exchanges[0].answer is None
