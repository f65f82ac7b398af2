"""Which resources there are, their templates, and the completion of what a template leaves open."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from holdfast import Holdfast
from holdfast.mcp.addresses import read_address
from tests.mcp.support import ask, read, submitted, taken

STANDING = ["task://queue", "task://current", "task://schedules"]
TEMPLATES = {
    "state://agents/{agent_id}/tasks/{task_id}",
    "state://agents/{agent_id}/tasks/{task_id}/steps{?after}",
    "state://agents/{agent_id}/tasks/{task_id}/checkpoints/{number}",
    "task://queue{?queue,after}",
    "artifact://{artifact_id}{?offset,length}",
    "fact://{entity}",
}


async def listed(client: Client) -> list[list[str]]:
    """The URIs, page by page."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = await client.list_resources(cursor=cursor)
        pages.append([str(resource.uri) for resource in page.resources])
        cursor = page.next_cursor
        if cursor is None:
            return pages


async def test_three_are_always_there(client: Client) -> None:
    assert await listed(client) == [STANDING]
    for uri in STANDING:
        await read(client, uri)


async def test_the_state_of_every_task_that_has_not_ended(client: Client) -> None:
    waiting = await submitted(client, "waiting", agent_id="a b")
    held, _ = await taken(client, "held")
    _, over = await taken(client, "over")
    await ask(client, "finish_task", lease=over)
    [page] = await listed(client)
    assert page == [*STANDING, f"state://agents/default/tasks/{held}", f"state://agents/a%20b/tasks/{waiting}"]
    for uri in page:
        await read(client, uri)
    described = (await client.list_resources()).resources[-1]
    assert (described.name, described.title, described.mime_type) == (waiting, "waiting", "application/json")
    assert "pending" in (described.description or "")


async def test_many_tasks_come_in_pages(client: Client) -> None:
    made = {f"state://agents/default/tasks/{await submitted(client, str(number))}" for number in range(107)}
    pages = await listed(client)
    assert [len(page) for page in pages] == [53, 50, 7]
    uris = [uri for page in pages for uri in page]
    assert uris[:3] == STANDING
    assert (set(uris[3:]), len(uris)) == (made, 110)
    with pytest.raises(MCPError) as refusal:
        await client.list_resources(cursor="guess")
    assert refusal.value.error.code == -32602


async def test_templates(client: Client) -> None:
    templates = (await client.list_resource_templates()).resource_templates
    assert {template.uri_template for template in templates} == TEMPLATES
    for template in templates:
        assert template.name
        assert template.description
        plain = template.uri_template.partition("{?")[0].replace("{number}", "1").replace("{", "").replace("}", "")
        assert read_address(plain) is not None


async def completed(client: Client, argument: str, begun: str = "", **chosen: str) -> list[str]:
    ref = ResourceTemplateReference(type="ref/resource", uri="state://agents/{agent_id}/tasks/{task_id}")
    result = await client.complete(ref, {"name": argument, "value": begun}, context_arguments=chosen or None)
    return result.completion.values


async def test_every_argument_is_completed(hold: Holdfast, client: Client) -> None:
    first = await submitted(client, "one", agent_id="ops", queue="disks")
    second = await submitted(client, "two", agent_id="dev", queue="deploys")
    kept = await ask(client, "add_artifact", task_id=first, name="n", summary="s", content="c")
    await ask(client, "remember", entity="host db1", attribute="a", value=1)
    assert set(await completed(client, "agent_id")) == {"ops", "dev"}
    assert await completed(client, "agent_id", "o") == ["ops"]
    assert set(await completed(client, "task_id")) == {first, second}
    assert await completed(client, "task_id", agent_id="ops") == [first]
    assert await completed(client, "task_id", first) == [first]
    assert await completed(client, "task_id", "zzz", agent_id="ops") == []
    assert await completed(client, "queue", "d") == sorted(await completed(client, "queue", "d"))
    assert set(await completed(client, "queue", "d")) >= {"disks", "deploys"}
    assert await completed(client, "artifact_id", kept["artifact_id"][:4]) == [kept["artifact_id"]]
    assert await completed(client, "entity", "host") == ["host db1"]
    assert await completed(client, "number", task_id=first) == []
    assert await completed(client, "number", task_id="nowhere") == []
    assert await completed(client, "anything") == []
    assert await hold.store.get(first) is not None


async def test_prompts_are_completed_too(client: Client) -> None:
    task_id = await submitted(client)
    ref = PromptReference(type="ref/prompt", name="resume_task")
    result: Any = await client.complete(ref, {"name": "task_id", "value": task_id[:6]})
    assert result.completion.values == [task_id]


async def test_never_more_than_the_protocol_allows(client: Client) -> None:
    for number in range(105):
        await submitted(client, f"{number}", agent_id=f"agent-{number}")
    ref = ResourceTemplateReference(type="ref/resource", uri="state://agents/{agent_id}/tasks/{task_id}")
    for argument in ("agent_id", "task_id"):
        result = await client.complete(ref, {"name": argument, "value": ""})
        assert len(result.completion.values) == 100
        assert result.completion.has_more
