"""A NUL is refused on arrival, wherever it is; and an error of the store tells a client nothing about the store."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from holdfast import Holdfast
from holdfast.mcp.addresses import has_nul
from holdfast.mcp.toolset.toolbox import TOOLS
from holdfast.model.errors import StoreError
from holdfast.model.task import JsonValue
from tests.mcp.support import connected, refused, submitted

NUL = "a\0b"
SECRET = "database postgres on /secret/socket"  # noqa: S105
SHAPES: list[Any] = [NUL, [NUL], {"k": NUL}, {NUL: "v"}, [{"key": "k", "value": {"deep": [NUL]}}]]


def refuses() -> Any:  # noqa: ANN401 - pytest's own
    return pytest.raises(MCPError, match="there is a NUL character in it, which no store can hold; leave it out")


@pytest.mark.parametrize(
    ("value", "has"),
    [
        (NUL, True),
        ({"a": [1, {"b": NUL}]}, True),
        ({NUL: 1}, True),
        ([[], (NUL,)], True),
        ("", False),
        ({"a": ["b", 1, None, True, 1.5]}, False),
    ],
    ids=repr,
)
def test_it_is_found_however_deep(value: JsonValue, *, has: bool) -> None:
    assert has_nul(value) is has


@pytest.mark.parametrize("tool", TOOLS)
async def test_in_no_argument_of_any_tool(hold: Holdfast, client: Client, tool: str) -> None:
    for parameter, given in itertools.product(TOOLS[tool].shown.input_schema["properties"], SHAPES):
        with refuses() as refusal:
            await client.call_tool(tool, {parameter: given})
        assert refusal.value.error.code == -32602
    assert not (await hold.store.find()).items


async def test_in_no_other_request(client: Client) -> None:
    prompt = PromptReference(name="resume_task")
    template = ResourceTemplateReference(uri="fact://{entity}")
    for request in (
        lambda: client.call_tool(NUL, {}),
        lambda: client.read_resource(f"fact://{NUL}"),
        lambda: client.list_resources(cursor=NUL),
        lambda: client.get_prompt("resume_task", {"task_id": NUL}),
        lambda: client.get_prompt(NUL, {}),
        lambda: client.complete(prompt, {"name": "task_id", "value": NUL}),
        lambda: client.complete(template, {"name": "entity", "value": "a"}, context_arguments={"x": NUL}),
    ):
        with pytest.raises(MCPError) as refusal:
            await request()
        assert refusal.value.error.code == -32602


@pytest.mark.parametrize(
    "uri",
    [
        "state://agents/a/tasks/%00",
        "state://agents/%00/tasks/a",
        "fact://%00",
        "artifact://%00",
        "task://queue?queue=%00",
    ],
)
async def test_in_no_uri_as_it_is_written_there(hold: Holdfast, uri: str) -> None:
    async with connected(hold) as client:
        with pytest.raises(MCPError) as refusal:
            await client.read_resource(uri)
        assert refusal.value.error.code == -32602
        assert (await refused(client, "read_resource", uri=uri))["kind"] == "NotFound"
        async with client.listen(resource_subscriptions=[uri, "task://queue"]) as stream:
            assert stream.honored.resource_subscriptions == ["task://queue"]
    async with connected(hold, era="legacy") as client:
        with pytest.warns(MCPDeprecationWarning), pytest.raises(MCPError, match="is not a resource of this server"):
            await client.subscribe_resource(uri)


async def test_a_store_that_fails_keeps_its_address_to_itself(
    hold: Holdfast, era: ConnectMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = 0

    async def failing(*_: object, **__: object) -> None:
        nonlocal failed
        failed += 1
        raise StoreError(f"{SECRET} refused a statement")

    async with connected(hold, era=era) as client:
        task_id = await submitted(client)
        for name in ("get", "find", "queued", "load", "recall", "search"):
            monkeypatch.setattr(hold.store, name, failing)
        for tool, arguments in (
            ("get_task", {"task_id": task_id}),
            ("list_tasks", {}),
            ("claim_task", {}),
            ("recall", {"query": "disk"}),
            ("read_resource", {"uri": "task://queue"}),
        ):
            answer = await refused(client, tool, **arguments)
            assert answer["kind"] == "StoreError"
            assert answer["error"].startswith("the store does not answer; it is not known whether this was done")
            assert SECRET not in str(answer)
        for uri in ("task://queue", "task://current", f"state://agents/default/tasks/{task_id}", "fact://db1"):
            with pytest.raises(MCPError, match="the store does not answer; try again in a moment") as refusal:
                await client.read_resource(uri)
            assert SECRET not in str(refusal.value.error)
    assert failed >= 9
