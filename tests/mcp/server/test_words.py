"""What a model reads has to be enough to go on, and true."""

from __future__ import annotations

import json

import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.client.extension import advertise

from holdfast import Holdfast
from holdfast.mcp.protocol_tasks import EXTENSION
from tests.mcp.support import ask, client_of, connected, refused, server_of, submitted, taken


async def test_who_holds_a_task_and_until_when(hold: Holdfast, client: Client) -> None:
    task_id, _ = await taken(client, key="k", lease_seconds=3600)
    [worker] = await hold.store.workers()
    async with connected(hold, "bob") as bob:
        answer = await refused(bob, "claim_task", task_id=task_id)
        assert answer["kind"] == "LeaseHeld"
        assert "is held by mcp:ada; if it stays silent, the task is free after 20" in answer["error"]
        assert worker.id not in answer["error"]
        assert "cancel" not in answer["error"]  # which would end the work
    for tool, given in (
        ("claim_task", {"task_id": task_id}),
        ("submit_task", {"goal": "Free the disk", "key": "k", "take": True}),
    ):
        answer = await refused(client, tool, **given)
        assert "is held by yourself (mcp:ada), under the lease of an earlier claim; go on with" in answer["error"]


@pytest.mark.parametrize(
    "given", [{"plan_step": "lok"}, {"next_step": "lok"}, {"plan_step": "look", "next_step": "lok"}]
)
async def test_a_slip_of_the_pen_does_not_leave_the_plan_undone(
    hold: Holdfast, client: Client, given: dict[str, str]
) -> None:
    task_id, lease = await taken(client, plan=["look", "clean"])
    answer = await refused(client, "complete_step", lease=lease, key="k", **given)
    assert answer["error"] == "'lok' is not a line of the plan; nothing was recorded. The plan is: look; clean"
    assert await hold.store.steps(task_id) == []
    await ask(client, "complete_step", lease=lease, key="k", plan_step="look", next_step="clean")
    assert (await hold.state(task_id)).completed_steps == ("look",)


async def test_without_a_plan_any_line_will_do(client: Client) -> None:
    _, lease = await taken(client)
    await ask(client, "complete_step", lease=lease, key="k", plan_step="look")


async def test_a_question_a_person_is_asked_is_closed_by_the_answer_alone(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client)
    asked = await ask(client, "ask_human", lease=lease, question="Which disk?")
    assert asked["how"].startswith("a person answers with: holdfast answer ")
    assert asked["how"].removeprefix("a person answers with: holdfast answer ").split()[0] in asked["question_id"]
    patch = {"resolve_questions": ["Which disk?"]}
    answer = await refused(client, "patch_state", task_id=task_id, version=2, patch=patch)
    assert (
        answer["error"] == "a person is still asked 'Which disk?', and only the answer closes it; nothing was changed"
    )
    assert (await hold.state(task_id)).open_questions == ("Which disk?",)


async def test_what_has_ended_is_not_sent_round_in_circles(client: Client) -> None:
    task_id, lease = await taken(client)
    await ask(client, "finish_task", lease=lease, result=1)
    for tool, given in (
        ("append_facts", {"facts": [{"key": "k", "value": 1}]}),
        ("patch_state", {"version": 1, "patch": {"set_flags": ["x"]}}),
        ("add_artifact", {"name": "n", "summary": "s", "content": "c"}),
    ):
        answer = await refused(client, tool, task_id=task_id, **given)
        assert "its state is final, nothing was changed; for more work submit a new" in answer["error"]
        assert "fork" not in answer["error"]


async def test_a_rejected_question_comes_back_with_its_note(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client)
    asked = await ask(client, "ask_human", lease=lease, question="Which disk?")
    await hold.reject(asked["question_id"], by="ann", note="find out yourself")
    claimed = await ask(client, "claim_task", task_id=task_id)
    expected = {"question": "Which disk?", "state": "rejected", "answer": None, "by": "ann"}
    assert claimed["answers"] == [{**expected, "note": "find out yourself"}]
    assert "open_questions" not in claimed["agent_state"]


async def test_a_claim_says_nothing_twice_and_nothing_empty(client: Client) -> None:
    plan = ["look at the disks", "clean the logs"]
    await submitted(client, "Free the disk of db1", plan=plan, details={"host": "db1"})
    claimed = await ask(client, "claim_task")
    text = json.dumps(claimed)
    assert text.count("look at the disks") == 1
    assert "user_input" not in text
    assert claimed["task"]["details"] == {"host": "db1"}
    assert set(claimed["agent_state"]) == {"goal", "plan"}


async def test_schemas_do_not_say_that_what_may_be_left_out_may_be_null(client: Client) -> None:
    for tool in (await client.list_tools()).tools:
        text = json.dumps(tool.input_schema)
        assert '{"type": "null"}' not in text.replace('"default": null', ""), tool.name
        assert '"default": null' not in text, tool.name


async def test_follow_is_shown_to_who_can_follow(hold: Holdfast, era: ConnectMode) -> None:
    async def parameters(*extensions: str) -> set[str]:
        declared = [advertise(name) for name in extensions]
        async with client_of(server_of(hold), era, extensions=declared) as client:
            [tool] = [one for one in (await client.list_tools()).tools if one.name == "submit_task"]
            return set(tool.input_schema["properties"])

    without = await parameters()
    assert "follow" not in without
    declaring = await parameters(EXTENSION)
    assert declaring - without == (set() if era == "legacy" else {"follow"})
    assert await parameters("com.example/other") == without


@pytest.mark.parametrize("name", ["get_task", "claim_task"])
async def test_times_are_there_where_they_matter_only(client: Client, name: str) -> None:
    task_id = await submitted(client)
    answer = await ask(client, name, task_id=task_id)
    assert "available_at" not in json.dumps(answer)
