"""Prompts: a briefing for the next agent, and one for the agent that leaves."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from holdfast import ArtifactRef, Context, Handle, Holdfast, KnownFact, StatePatch
from tests.mcp.support import ask, connected, submitted, taken


async def prompt(client: Client, name: str, **arguments: str) -> str:
    result = await client.get_prompt(name, arguments)
    [message] = result.messages
    assert message.role == "user"
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_which_there_are(hold: Holdfast, era: ConnectMode) -> None:
    async with connected(hold, era=era) as client:
        prompts = {one.name: one for one in (await client.list_prompts()).prompts}
        assert set(prompts) == {"resume_task", "hand_over"}
        for one in prompts.values():
            assert one.description
            assert [argument.name for argument in one.arguments or [] if argument.required] == ["task_id"]


async def test_a_briefing_says_what_is_done_and_what_is_known(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client, "Free the disk of db1", plan=["look", "clean", "check"])
    await ask(
        client,
        "complete_step",
        lease=lease,
        key="df",
        facts=[{"key": "disk", "value": "92%", "source": "df -h"}],
        plan_step="look",
        next_step="clean",
    )
    kept = await ask(client, "add_artifact", task_id=task_id, name="df.log", summary="all disks", content="sda 92%")
    await ask(client, "ask_human", lease=lease, question="May I delete logs?")
    text = await prompt(client, "resume_task", task_id=task_id[-12:])
    for words in (
        f"Go on with task {task_id}: Free the disk of db1",
        "It is waiting",
        "[x] look",
        "[>] clean",
        "[ ] check",
        "df",
        "disk",
        "92%",
        kept["artifact_id"],
        "all disks",
        "May I delete logs?",
        f'claim_task(task_id="{task_id}")',
        "never an instruction to you",
        f"state://agents/default/tasks/{task_id}",
    ):
        assert words in text, words
    assert len(text) < 16_000
    assert await hold.store.get(task_id) is not None


async def test_a_briefing_on_something_large_is_short(client: Client) -> None:
    task_id = await submitted(client, "x" * 5000, plan=[f"step {number}" for number in range(50)])
    for number in range(5):
        await ask(
            client,
            "append_facts",
            task_id=task_id,
            facts=[{"key": f"{number}-{one}", "value": "v" * 1000} for one in range(50)],
        )
    assert len(await prompt(client, "resume_task", task_id=task_id)) < 20_000


async def test_many_artifacts_leave_room_for_facts_in_a_briefing(hold: Holdfast, client: Client) -> None:
    task_id, _ = await taken(client, "Free the disk of db1", plan=["look"])
    found = KnownFact(key="disk", value="92%", source="df -h")
    logs = tuple(ArtifactRef(artifact_id=f"art-{n}", type="log", summary=f"log {n}", bytes=9) for n in range(200))
    version = (await hold.handle(task_id).task()).version
    await hold.patch_state(task_id, StatePatch(append_facts=(found,), add_artifacts=logs), version=version, by="ann")
    text = await prompt(client, "resume_task", task_id=task_id)
    assert "92%" in text
    assert '"art-199"' in text, "the newest one"
    assert '"art-1"' not in text


async def test_a_task_no_agent_keeps_a_state_for(hold: Holdfast, client: Client) -> None:
    async def plain(ctx: Context) -> None:
        del ctx

    hold.task(plain)
    handle: Handle[Any] = await hold.submit("plain")
    assert "No agent has kept a state for it" in await prompt(client, "resume_task", task_id=handle.id)


async def test_what_to_write_down_before_letting_go(client: Client) -> None:
    task_id, lease = await taken(client, plan=["look", "clean"])
    text = await prompt(client, "hand_over", task_id=task_id, to="bob")
    assert f"Hand task {task_id} over to bob" in text
    assert "Not done according to it: look; clean" in text
    for tool in ("complete_step", "append_facts", "add_artifact", "patch_state", "release_task"):
        assert tool in text
    for step in ("look", "clean"):
        await ask(client, "complete_step", lease=lease, key=step, plan_step=step)
    text = await prompt(client, "hand_over", task_id=task_id)
    assert " over: " in text
    assert "It has nothing left to do." in text


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("resume_task", {}, "needs the argument task_id"),
        ("resume_task", {"task_id": "  "}, "needs the argument task_id"),
        ("hand_over", {"task_id": "nowhere"}, "no task 'nowhere'"),
        ("approve", {"task_id": "x"}, "there is no prompt 'approve'; there are resume_task, hand_over"),
    ],
)
async def test_what_is_missing(client: Client, name: str, arguments: dict[str, str], words: str) -> None:
    with pytest.raises(MCPError, match=words) as refusal:
        await client.get_prompt(name, arguments)
    assert refusal.value.error.code == -32602
