"""The inspector against `holdfast serve` and `holdfast mcp`, for `make test-mcp-conformance`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.mcp.conformance.inspector import PATIENCE, TOOL_SAID_NO, Inspector, over_http, over_stdio
from tests.mcp.conformance.programs import INSPECTOR, node, skip_unless_wanted
from tests.mcp.conformance.stock import FACTS_ABOUT, GOAL, Stock
from tests.web.support import SECRET, Served

skip_unless_wanted()

TOOLS = {
    "submit_task",
    "wait_for_task",
    "get_task",
    "list_tasks",
    "patch_state",
    "append_facts",
    "add_artifact",
    "report_progress",
    "cancel_task",
    "ask_human",
    "claim_task",
    "complete_step",
    "finish_task",
    "release_task",
    "remember",
    "read_resource",
    "recall",
}


@pytest.fixture(params=["http-legacy", "http-modern", "stdio-legacy", "stdio-modern"])
def inspector(request: pytest.FixtureRequest, stock: Stock, tmp_path: Path) -> Inspector:
    transport, era = request.param.split("-")
    if transport == "stdio":
        return Inspector(over_stdio(stock.url), era, tmp_path)
    server: Served = request.getfixturevalue("server")
    return Inspector(over_http(server.url, SECRET), era, tmp_path)


def test_tools_are_listed(inspector: Inspector) -> None:
    tools = {tool["name"]: tool for tool in inspector.ask("tools/list")["tools"]}
    assert tools.keys() == TOOLS
    assert all(tool["description"] for tool in tools.values())
    assert tools["get_task"]["inputSchema"]["required"] == ["task_id"]
    assert tools["get_task"]["annotations"]["readOnlyHint"] is True
    assert tools["cancel_task"]["annotations"]["destructiveHint"] is True


def test_schemas_are_portable(inspector: Inspector) -> None:
    """The inspector knows what clients and models stumble over. Some of our arguments are any JSON, on purpose."""
    found = inspector.hear("tools/list", "--strict").get("schemaFindings", [])
    assert {finding["rule"] for tool in found for finding in tool["findings"]} <= {"untyped-schema"}


@pytest.mark.usefixtures("worker")
def test_a_task_is_submitted_once_done_and_found(inspector: Inspector, request: pytest.FixtureRequest) -> None:
    """In the modern era the inspector knows the extension of tasks, and may be given a task to follow to its end."""
    label = request.node.name
    submission = {"name": "slow_compute", "arguments": [0, label], "key": label}
    first = inspector.call("submit_task", **submission)
    again = inspector.call("submit_task", **submission)
    assert again["task_id"] == first["task_id"]
    ended = inspector.call("wait_for_task", task_id=first["task_id"], timeout_seconds=50)
    assert (ended["done"], ended["state"], ended["result"]) == (True, "completed", label)
    seen = inspector.call("get_task", task_id=first["task_id"])
    assert (seen["name"], seen["state"], seen["key"]) == ("slow_compute", "completed", label)
    listed = inspector.call("list_tasks", text=label)
    assert [task["task_id"] for task in listed["tasks"]] == [first["task_id"]]


def test_a_task_that_is_not_there_is_an_error_in_words(inspector: Inspector) -> None:
    answer = inspector.call("get_task", task_id="no-such-task", code=TOOL_SAID_NO)
    assert "no-such-task" in answer["error"]


def test_arguments_that_do_not_fit_are_an_error_in_words(inspector: Inspector) -> None:
    answer = inspector.call("list_tasks", limit=0, code=TOOL_SAID_NO)
    assert "limit" in answer["error"]


def test_resources_are_listed(inspector: Inspector, stock: Stock) -> None:
    uris = {resource["uri"] for resource in inspector.ask("resources/list")["resources"]}
    assert uris >= {"task://queue", "task://current", f"state://agents/default/tasks/{stock.task}"}


def test_templates_are_listed(inspector: Inspector) -> None:
    templates = inspector.ask("resources/templates/list")["resourceTemplates"]
    beginnings = ("state://agents/{agent_id}/tasks/{task_id}", "artifact://{artifact_id}", "fact://{entity}")
    for beginning in beginnings:
        assert [one for one in templates if one["uriTemplate"].startswith(beginning)], beginning
    for one in (
        "state://agents/{agent_id}/tasks/{task_id}/checkpoints/{number}",
        "state://agents/{agent_id}/tasks/{task_id}/steps{?after}",
    ):
        assert one in {template["uriTemplate"] for template in templates}


def test_the_queue_is_read(inspector: Inspector, stock: Stock) -> None:
    [content] = inspector.ask("resources/read", "--uri", "task://queue")["contents"]
    assert content["mimeType"] == "application/json"
    assert stock.task in {task["task_id"] for task in json.loads(content["text"])["tasks"]}


def test_facts_are_read(inspector: Inspector) -> None:
    [content] = inspector.ask("resources/read", "--uri", f"fact://{FACTS_ABOUT}")["contents"]
    assert json.loads(content["text"])["entity"] == FACTS_ABOUT


def test_prompts_are_listed_and_got(inspector: Inspector, stock: Stock) -> None:
    prompts = {prompt["name"]: prompt for prompt in inspector.ask("prompts/list")["prompts"]}
    assert prompts.keys() == {"resume_task", "hand_over"}
    for name in prompts:
        options = ("--prompt-name", name, "--prompt-args", f"task_id={stock.task}")
        messages = inspector.ask("prompts/get", *options)["messages"]
        assert GOAL in "".join(message["content"].get("text", "") for message in messages)


def test_without_the_token_access_is_refused(server: Served, tmp_path: Path) -> None:
    ended = asked_without_token(server, tmp_path)
    assert ended.returncode not in {0, TOOL_SAID_NO}
    assert ended.stdout == ""
    assert "auth" in ended.stderr.lower()


def asked_without_token(server: Served, home: Path) -> subprocess.CompletedProcess[str]:
    target = (f"{server.url}/mcp", "--transport", "http", "--stored-auth-only")
    return node(
        INSPECTOR, "--cli", *target, "--format", "json", "-q", "--method", "tools/list", home=home, timeout=PATIENCE
    )
