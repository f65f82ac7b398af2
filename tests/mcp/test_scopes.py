"""Scopes: who may call what, and that no caller is shown what it may not call."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.shared.exceptions import MCPError

from holdfast import Holdfast, InvalidValue
from holdfast.mcp.toolset.toolbox import TOOLS
from holdfast.service.access import EVERYTHING, READ_ONLY, AccessScope, Caller, read_scopes
from tests.mcp.support import Answer, connected, refused, submitted
from tests.mcp.test_schemas import REQUIRED

# The rights of every tool, as docs/mcp.md has them.
SCOPES = {
    **dict.fromkeys(("get_task", "list_tasks", "wait_for_task", "read_resource", "recall"), AccessScope.READ),
    **dict.fromkeys(("submit_task", "cancel_task"), AccessScope.SUBMIT),
    **dict.fromkeys(("patch_state", "append_facts", "add_artifact", "remember"), AccessScope.WORK),
    **dict.fromkeys(("claim_task", "report_progress", "complete_step"), AccessScope.WORK),
    **dict.fromkeys(("ask_human", "finish_task", "release_task"), AccessScope.WORK),
}
ARGUMENTS: dict[str, Any] = {
    "task_id": "nowhere",
    "uri": "task://queue",
    "goal": "x",
    "reason": "x",
    "version": 0,
    "patch": {"set_flags": ["x"]},
    "facts": [{"key": "k", "value": 1}],
    "name": "n",
    "summary": "s",
    "content": "c",
    "lease": "nowhere/1/x",
    "message": "m",
    "key": "k",
    "question": "q",
    "entity": "e",
    "attribute": "a",
    "value": 1,
}
EVERY_SET = [frozenset(chosen) for size in range(4) for chosen in itertools.combinations(AccessScope, size)]


async def called(client: Client, tool: str) -> Answer:
    arguments = {name: ARGUMENTS[name] for name in REQUIRED[tool]}
    answer: Answer = (await client.call_tool(tool, arguments)).structured_content
    return answer


@pytest.mark.parametrize("scopes", EVERY_SET, ids=lambda scopes: "+".join(sorted(scopes)) or "none")
async def test_a_tool_is_shown_to_and_called_by_the_clients_it_is_for(
    hold: Holdfast, scopes: frozenset[AccessScope]
) -> None:
    async with connected(hold, scopes=scopes) as client:
        shown = {tool.name for tool in (await client.list_tools()).tools}
        assert shown == {name for name, scope in SCOPES.items() if scope in scopes}
        for tool, scope in SCOPES.items():
            answer = await called(client, tool)
            assert (answer.get("kind") == "NotAllowed") == (scope not in scopes), (tool, answer)
            if scope not in scopes:
                assert f"needs the scope '{scope}'" in answer["error"]


async def test_a_server_that_only_reads_takes_every_other_right_away(hold: Holdfast, era: ConnectMode) -> None:
    async with connected(hold, read_only=True, era=era) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {
            name for name, scope in SCOPES.items() if scope is AccessScope.READ
        }
        for tool, scope in SCOPES.items():
            if scope is not AccessScope.READ:
                assert (await called(client, tool))["kind"] == "NotAllowed"
    assert not (await hold.store.find()).items
    assert await hold.store.recall() == []


async def test_who_may_not_read_reads_nothing(hold: Holdfast, client: Client) -> None:
    task_id = await submitted(client)
    async with connected(hold, "eve", scopes=frozenset({AccessScope.WORK, AccessScope.SUBMIT})) as eve:
        for request in (
            eve.list_resources(),
            eve.list_resource_templates(),
            eve.read_resource("task://queue"),
            eve.list_prompts(),
            eve.get_prompt("resume_task", {"task_id": task_id}),
        ):
            with pytest.raises(MCPError, match="eve may not do this: it needs the scope 'read'") as refusal:
                await request
            assert refusal.value.error.code == -32602


async def test_taking_at_once_needs_the_right_to_work_and_submits_nothing_without(hold: Holdfast) -> None:
    async with connected(hold, scopes=frozenset({AccessScope.SUBMIT})) as client:
        assert (await refused(client, "submit_task", goal="x", take=True))["kind"] == "NotAllowed"
    assert not (await hold.store.find()).items


def test_no_scope_decides() -> None:
    assert {str(scope) for scope in AccessScope} == {"read", "work", "submit"}
    assert set(SCOPES) == set(TOOLS)


def test_scopes_are_read_from_words() -> None:
    assert read_scopes(["read", " work "]) == {AccessScope.READ, AccessScope.WORK}
    for words in ([], ["approve"], ["read", ""], ["READ"]):
        with pytest.raises(InvalidValue, match="choose from read, work, submit"):
            read_scopes(words)


def test_a_caller_reads_as_an_agent_in_every_history() -> None:
    assert Caller("ann").actor == "mcp:ann"
    assert Caller("ann").scopes == EVERYTHING
    assert not Caller("ann", READ_ONLY).may(AccessScope.WORK)
    for name in ("", "a\0b"):
        with pytest.raises(InvalidValue, match="the name of a caller"):
            Caller(name)
