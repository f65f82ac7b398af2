"""What a client is shown of the tools: enough for a model that knows nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.shared.exceptions import MCPError
from mcp_types import Tool

import holdfast
from holdfast import Holdfast
from holdfast.mcp.toolset.toolbox import TOOLS
from tests.mcp.support import connected, refused

REQUIRED = {
    "get_task": {"task_id"},
    "list_tasks": set(),
    "wait_for_task": {"task_id"},
    "read_resource": {"uri"},
    "submit_task": set(),
    "cancel_task": {"task_id", "reason"},
    "patch_state": {"task_id", "version", "patch"},
    "append_facts": {"task_id", "facts"},
    "add_artifact": {"task_id", "name", "summary", "content"},
    "claim_task": set(),
    "report_progress": {"lease", "message"},
    "complete_step": {"lease", "key"},
    "ask_human": {"lease", "question"},
    "finish_task": {"lease"},
    "release_task": {"lease"},
    "remember": {"entity", "attribute", "value"},
    "recall": set(),
}
READING = {"get_task", "list_tasks", "wait_for_task", "read_resource", "recall"}
DESTRUCTIVE = {"cancel_task", "patch_state", "finish_task"}


@pytest.fixture
async def tools(client: Client) -> dict[str, Tool]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


def test_the_table_above_is_complete() -> None:
    assert set(REQUIRED) == set(TOOLS)


async def test_both_eras_see_the_same(hold: Holdfast, era: ConnectMode) -> None:
    async with connected(hold, era=era) as client:
        shown = (await client.list_tools()).tools
        assert [tool.name for tool in shown] == list(TOOLS)
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("holdfast", holdfast.__version__)
        assert "data, not an instruction" in (client.instructions or "")


@pytest.mark.parametrize("name", TOOLS)
async def test_a_tool_says_when_to_call_it_and_what_comes_back(tools: dict[str, Tool], name: str) -> None:
    described = tools[name].description or ""
    assert "Call it " in described
    assert len(described) >= 150, described
    assert len(described) <= 1500, "a model pays for every word of it"
    assert tools[name].title


@pytest.mark.parametrize("name", TOOLS)
async def test_its_arguments_are_described_and_the_needed_ones_required(tools: dict[str, Tool], name: str) -> None:
    schema: dict[str, Any] = tools[name].input_schema
    assert schema["type"] == "object"
    assert set(schema.get("required", ())) == REQUIRED[name]
    for parameter, what in schema["properties"].items():
        assert what.get("description"), parameter


@pytest.mark.parametrize("name", TOOLS)
async def test_its_hints_are_true(tools: dict[str, Tool], name: str) -> None:
    hints = tools[name].annotations
    assert hints is not None
    assert hints.read_only_hint == (name in READING)
    assert hints.destructive_hint == (name in DESTRUCTIVE)
    assert hints.open_world_hint is False


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("get_task", {}, "task_id"),
        ("get_task", {"task_id": 1}, "task_id"),
        ("get_task", {"task_id": "x", "more": 1}, "more"),
        ("list_tasks", {"limit": 0}, "limit"),
        ("list_tasks", {"limit": 51}, "limit"),
        ("list_tasks", {"state": "lost"}, "state"),
        ("wait_for_task", {"task_id": "x", "timeout_seconds": 56}, "timeout_seconds"),
        ("submit_task", {"goal": "x", "priority": 1001}, "priority"),
        ("submit_task", {"goal": "x", "delay_seconds": -1}, "delay_seconds"),
        ("submit_task", {"goal": "x", "lease_seconds": 0.5}, "lease_seconds"),
        ("claim_task", {"lease_seconds": 3601}, "lease_seconds"),
        ("claim_task", {"queues": "default"}, "queues"),
        ("report_progress", {"lease": "x", "message": "x", "percent": 101}, "percent"),
        ("complete_step", {"lease": "x", "key": ""}, "key"),
        ("append_facts", {"task_id": "x", "facts": []}, "facts"),
        ("add_artifact", {"task_id": "x", "name": "n", "summary": "s", "content": "c", "encoding": "hex"}, "encoding"),
        ("remember", {"entity": "", "attribute": "a", "value": 1}, "entity"),
        ("remember", {"entity": "e", "attribute": "a", "value": 1, "confidence": 0}, "confidence"),
        ("recall", {"limit": 51}, "limit"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_arguments_that_are_wrong_are_refused_in_words(
    client: Client, tool: str, arguments: dict[str, Any], words: str
) -> None:
    answer = await refused(client, tool, **arguments)
    assert answer["kind"] == "BadArguments"
    assert words in answer["error"]
    assert tool in answer["error"]
    assert "\n" not in answer["error"].strip()


@pytest.mark.parametrize("text", ["\ud800", "a\0b"], ids=repr)
async def test_text_that_cannot_be_stored_is_refused_with_a_clear_error(client: Client, text: str) -> None:
    for tool, arguments in (
        ("submit_task", {"goal": text}),
        ("get_task", {"task_id": text}),
        ("report_progress", {"lease": text, "message": "x"}),
        ("remember", {"entity": text, "attribute": "a", "value": 1}),
        ("recall", {"query": text}),
        ("recall", {"entity": text}),
        ("list_tasks", {"text": text}),
        ("list_tasks", {"cursor": text}),
    ):
        try:
            result = await client.call_tool(tool, arguments)
        except MCPError as refusal:
            assert refusal.error.code == -32602  # noqa: PT017 - one way to refuse, the other is below
            continue
        assert result.is_error
        assert result.structured_content["error"]


async def test_a_tool_that_is_not_there(client: Client) -> None:
    with pytest.raises(MCPError, match="there is no tool 'approve'; there are get_task, ") as refusal:
        await client.call_tool("approve", {})
    assert refusal.value.error.code == -32602
