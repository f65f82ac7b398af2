"""The hand-over through the tools: claim, work, ask, let go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client
from mcp.client.client import ConnectMode

from holdfast import Context, Handle, Holdfast
from tests.mcp.support import ask, client_of, connected, refused, server_of, submitted, taken


async def test_a_claim_brings_everything_needed_to_go_on(client: Client) -> None:
    task_id = await submitted(client, plan=["look", "clean"])
    first = await ask(client, "claim_task", lease_seconds=90)
    assert (first["task"]["task_id"], first["lease_seconds"], first["answers"]) == (task_id, 90, [])
    assert first["uri"] == f"state://agents/default/tasks/{task_id}"
    recorded = await ask(
        client,
        "complete_step",
        lease=first["lease"],
        key="look",
        output={"disk": "92%"},
        facts=[{"key": "disk", "value": "92%"}],
        plan_step="look",
        next_step="clean",
    )
    assert (recorded["replayed"], recorded["state"], recorded["version"]) == (False, "running", 2)
    await ask(client, "release_task", lease=first["lease"], note="mind the logs", facts=[{"key": "big", "value": 1}])
    second = await ask(client, "claim_task", task_id=task_id[-12:])
    state = second["agent_state"]
    assert (state["completed_steps"], state["current_step"]) == (["look"], "clean")
    assert [fact["key"] for fact in state["known_facts"]] == ["disk", "big"]
    assert second["lease"] != first["lease"]


async def test_nothing_waits(client: Client) -> None:
    assert await ask(client, "claim_task") == {"task": None, "elsewhere": {}}
    await submitted(client, queue="disks")
    assert await ask(client, "claim_task") == {"task": None, "elsewhere": {"disks": 1}}


async def test_waiting_for_work_to_come(client: Client) -> None:
    waiting = asyncio.create_task(ask(client, "claim_task", wait_seconds=50))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    task_id = await submitted(client)
    assert (await waiting)["task_id"] == task_id
    assert (await ask(client, "claim_task", wait_seconds=0.05))["task"] is None


async def test_a_call_whose_answer_was_lost_can_be_made_again(client: Client) -> None:
    _, lease = await taken(client)
    for replayed in (False, True):
        answer = await ask(client, "complete_step", lease=lease, key="look", output=1)
        assert answer["replayed"] is replayed
    assert (await refused(client, "complete_step", lease=lease, key="look", output=2))["kind"] == "Conflict"


async def test_a_question_is_answered_where_people_are(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client)
    asked = await ask(client, "ask_human", lease=lease, question="Which disk?")
    assert (asked["state"], asked["task_id"]) == ("waiting", task_id)
    assert (await refused(client, "claim_task", task_id=task_id))["kind"] == "Conflict"
    await hold.answer(asked["question_id"], "sdb", by="ann")
    claimed = await ask(client, "claim_task", task_id=task_id)
    [answer] = claimed["answers"]
    assert (answer["question"], answer["answer"], answer["by"]) == ("Which disk?", "sdb", "ann")
    [fact] = claimed["agent_state"]["known_facts"]
    assert fact["source"] == "human:ann"


async def test_the_lease_is_not_the_connections(hold: Holdfast, era: ConnectMode) -> None:
    """The agent comes back on another connection, to another server, and still holds its task."""
    async with connected(hold, era=era) as before:
        task_id, lease = await taken(before)
    async with connected(hold, era=era) as after:
        await ask(after, "complete_step", lease=lease, key="look")
        done = await ask(after, "finish_task", lease=lease, result="done")
    assert (done["task_id"], done["state"], done["result"]) == (task_id, "completed", "done")


async def test_failing(client: Client) -> None:
    _, lease = await taken(client)
    done = await ask(client, "finish_task", lease=lease, failed="there is no disk")
    assert (done["state"], done["error"]["message"]) == ("failed", "there is no disk")


@pytest.mark.parametrize("tool", ["report_progress", "complete_step", "ask_human", "finish_task", "release_task"])
async def test_without_a_lease_nothing_is_done(hold: Holdfast, client: Client, tool: str) -> None:
    task_id, lease = await taken(client)
    more = {"report_progress": {"message": "m"}, "complete_step": {"key": "k"}, "ask_human": {"question": "q"}}
    for given, kind in (
        ("no lease", "InvalidValue"),
        (f"{task_id}/{'9' * 5000}/x", "InvalidValue"),
        (lease[:-1], "LeaseLost"),
        (f"{task_id}/1/guess", "LeaseLost"),
    ):
        assert (await refused(client, tool, lease=given, **more.get(tool, {})))["kind"] == kind
    assert await hold.store.steps(task_id) == []
    await ask(client, "finish_task", lease=lease)


async def test_a_task_of_our_own_is_claimed_only_where_the_server_allows_it(hold: Holdfast, client: Client) -> None:
    async def deploy(ctx: Context) -> str:
        del ctx
        return "up"

    hold.task(deploy)
    handle: Handle[Any] = await hold.submit("deploy")
    assert "--claim NAME" in (await refused(client, "claim_task", task_id=handle.id))["error"]
    assert (await ask(client, "claim_task"))["task"] is None
    async with client_of(server_of(hold, "bob", claimable=("handover", "deploy"))) as bob:
        claimed = await ask(bob, "claim_task")
        assert claimed["task"]["task_id"] == handle.id
        assert claimed["agent_state"] is None
        assert "release_task" in (await refused(bob, "finish_task", lease=claimed["lease"], failed="no"))["error"]
        assert (await ask(bob, "finish_task", lease=claimed["lease"], result="by hand"))["state"] == "review"
    async with hold.worker():
        assert await handle.result(60) == "by hand"
