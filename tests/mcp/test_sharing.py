"""patch_state, append_facts, add_artifact: what agents share about a task."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from mcp import Client

from holdfast import Holdfast
from tests.mcp.support import ask, connected, refused, submitted, taken


async def test_of_two_clients_that_patch_the_same_version_one_wins(hold: Holdfast, client: Client) -> None:
    task_id = await submitted(client, plan=["look"])
    async with connected(hold, "bob") as bob:
        answers = await asyncio.gather(
            *(
                who.call_tool("patch_state", {"task_id": task_id, "version": 1, "patch": {"replace_plan": [plan]}})
                for who, plan in ((client, "ada's"), (bob, "bob's"))
            )
        )
        [won] = [answer.structured_content for answer in answers if not answer.is_error]
        [lost] = [answer.structured_content for answer in answers if answer.is_error]
        assert won["version"] == 2
        assert lost["kind"] == "StateConflict"
        assert "nothing was changed" in lost["error"]
        newer = lost["newer"]
        assert (newer["version"], newer["agent_state"]["plan"]) == (2, won["plan"])
        merged = {"replace_plan": [*newer["agent_state"]["plan"], "and more"]}
        again = await ask(bob, "patch_state", task_id=task_id, version=newer["version"], patch=merged)
        assert again["version"] == 3
    history = await hold.state_history(task_id)
    assert {patch.author for patch in history[1:]} <= {"mcp:ada", "mcp:bob"}


async def test_a_patch_changes_what_it_names(client: Client) -> None:
    task_id = await submitted(client, plan=["look"])
    changed = await ask(
        client,
        "patch_state",
        task_id=task_id,
        version=1,
        patch={"add_questions": ["why?"], "set_flags": ["careful"], "current_step": "look"},
        reason="seen",
    )
    state = changed["agent_state"]
    assert (state["open_questions"], state["risk_flags"], state["current_step"]) == (["why?"], ["careful"], "look")
    assert changed["version"] == 2
    closed = await ask(client, "patch_state", task_id=task_id, version=2, patch={"resolve_questions": ["why?"]})
    assert closed["agent_state"]["open_questions"] == []


@pytest.mark.parametrize("name", ["goal", "constraints", "budget", "add_artifacts"])
async def test_what_is_the_operators_cannot_be_patched(hold: Holdfast, client: Client, name: str) -> None:
    task_id = await submitted(client)
    answer = await refused(client, "patch_state", task_id=task_id, version=1, patch={name: {}})
    assert "Goal, budget and constraints are the operator's" in answer["error"]
    assert len(await hold.state_history(task_id)) == 1


async def test_a_fact_is_in_the_callers_name(hold: Holdfast, client: Client) -> None:
    task_id = await submitted(client)
    await ask(client, "append_facts", task_id=task_id, facts=[{"key": "disk", "value": "92%", "source": "df -h"}])
    [fact] = (await hold.state(task_id)).known_facts
    assert fact.source == "mcp:ada/df -h"


async def test_facts_of_many_at_once_are_all_kept(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client)
    async with connected(hold, "bob") as bob:
        answers = await asyncio.gather(
            *(
                ask(who, "append_facts", task_id=task_id, facts=[{"key": f"{name}-{number}", "value": number}], **more)
                for number in range(4)
                for who, name, more in ((client, "ada", {"lease": lease}), (bob, "bob", {}))
            )
        )
    assert max(answer["facts"] for answer in answers) == 8
    known = {fact.key for fact in (await hold.state(task_id)).known_facts}
    assert known == {f"{name}-{number}" for name in ("ada", "bob") for number in range(4)}


async def test_a_fact_that_is_known_already_changes_nothing(client: Client) -> None:
    task_id = await submitted(client)
    fact = {"key": "disk", "value": "92%"}
    first = await ask(client, "append_facts", task_id=task_id, facts=[fact])
    again = await ask(client, "append_facts", task_id=task_id, facts=[fact])
    assert (first["facts"], again["facts"]) == (1, 1)


async def test_with_a_lease_that_is_over_nothing_is_added(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client)
    await ask(client, "release_task", lease=lease)
    answer = await refused(client, "append_facts", task_id=task_id, facts=[{"key": "k", "value": 1}], lease=lease)
    assert answer["kind"] == "LeaseLost"
    assert (await hold.state(task_id)).known_facts == ()


async def keep(client: Client, task_id: str, content: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    return await ask(
        client, "add_artifact", task_id=task_id, name="df.log", summary="disks", content=content, **options
    )


async def test_an_artifact_of_text(hold: Holdfast, client: Client) -> None:
    task_id = await submitted(client)
    answer = await keep(client, task_id, "größer\n")
    assert answer["uri"] == f"artifact://{answer['artifact_id']}"
    assert await hold.store.read_artifact(answer["artifact_id"]) == "größer\n".encode()
    assert answer["bytes"] == len("größer\n".encode())
    [mention] = (await hold.state(task_id)).artifacts
    assert (mention.artifact_id, mention.summary) == (answer["artifact_id"], "disks")


async def test_an_artifact_of_bytes(hold: Holdfast, client: Client) -> None:
    task_id = await submitted(client)
    content = bytes(range(256))
    answer = await keep(client, task_id, base64.b64encode(content).decode(), encoding="base64", media_type="image/png")
    stored = await hold.artifacts.stat(answer["artifact_id"])
    assert (stored.size, stored.media_type) == (256, "image/png")
    assert await hold.store.read_artifact(stored.id) == content


@pytest.mark.parametrize("content", ["%%%", "YQ", "YQ==\n", "é", "Y Q=="], ids=repr)
async def test_what_is_not_base64_is_refused(hold: Holdfast, client: Client, content: str) -> None:
    task_id = await submitted(client)
    answer = await refused(
        client, "add_artifact", task_id=task_id, name="n", summary="s", content=content, encoding="base64"
    )
    assert "the content is not valid base64" in answer["error"]
    assert await hold.store.artifact_links(task_id) == []


async def test_an_artifact_that_is_too_large_for_one_call(hold: Holdfast, client: Client) -> None:
    task_id = await submitted(client)
    answer = await refused(
        client, "add_artifact", task_id=task_id, name="n", summary="s", content="x" * ((2 << 20) + 1)
    )
    assert "content" in answer["error"]
    assert len(answer["error"]) < 1000  # and it is not returned to the caller
    assert await hold.store.artifact_links(task_id) == []
    assert (await keep(client, task_id, "x" * (2 << 20)))["bytes"] == 2 << 20
