"""submit_task reports the result, and refuses what is impossible before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client

from holdfast import Context, Holdfast
from tests.mcp.support import ask, connected, refused, submitted


async def bill(ctx: Context, customer: str) -> str:
    del ctx
    return customer


async def test_created_says_whether_it_was_there_already(hold: Holdfast, client: Client) -> None:
    for expected in (True, False, False):
        answer = await ask(client, "submit_task", goal="Free the disk", key="k")
        assert answer["created"] is expected
    for expected in (True, False):
        answer = await ask(client, "submit_task", name="bill", goal="Ann", key="k")
        assert answer["created"] is expected
    assert [(await ask(client, "submit_task", goal="x"))["created"] for _ in range(2)] == [True, True]
    assert len((await hold.store.find()).items) == 4


async def test_taking_what_was_there_already(client: Client) -> None:
    task_id = await submitted(client, key="k")
    answer = await ask(client, "submit_task", goal="Free the disk", key="k", take=True)
    assert (answer["created"], answer["task_id"]) == (False, task_id)
    assert answer["uri"] == f"state://agents/default/tasks/{task_id}"
    assert answer["lease"].startswith(f"{task_id}/")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "without a name it takes a goal"),
        ({"goal": ""}, "without a name it takes a goal"),
        ({"name": "bill"}, "give either a goal, which is then its one argument, or arguments"),
        ({"name": "bill", "goal": "Ann", "arguments": ["Ann"]}, "give either a goal"),
        ({"name": "handover", "goal": "x"}, "has no name; leave out name='handover'"),
        ({"name": "handover", "arguments": ["g", {"plan": 5}]}, "has no name; leave out name='handover'"),
        ({"goal": "x", "take": True, "delay_seconds": 5}, "you begin now: leave out follow and delay_seconds"),
        ({"goal": "x", "take": True, "follow": True}, "you begin now: leave out follow and delay_seconds"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("knows_the_application", [False, True])
async def test_what_cannot_be_is_refused_and_nothing_is_stored(
    hold: Holdfast, given: dict[str, Any], words: str, *, knows_the_application: bool
) -> None:
    if knows_the_application:
        hold.task(bill)
    async with connected(hold) as client:
        answer = await refused(client, "submit_task", **given)
    assert answer["kind"] == "InvalidValue"
    assert words in answer["error"]
    assert not (await hold.store.find()).items


async def test_an_error_lists_the_existing_names(hold: Holdfast) -> None:
    hold.task(bill)
    hold.task(name="ship", queue="docks")(bill)
    async with connected(hold) as client:
        answer = await refused(client, "submit_task", name="mystery", goal="x")
        assert answer["error"] == "there is no task 'mystery' here; there are: bill, ship"
        assert (await ask(client, "submit_task", name="ship", goal="Ann"))["queue"] == "docks"
    assert [task.name for task in (await hold.store.find()).items] == ["ship"]


async def test_without_known_names_the_reason_is_shown(client: Client) -> None:
    answer = await ask(client, "submit_task", name="mystery", goal="x")
    assert answer["why"] == "no live worker takes 'mystery' tasks from this queue"


async def test_a_cancel_that_came_too_late_keeps_the_first_reason(client: Client) -> None:
    task_id = await submitted(client)
    await ask(client, "cancel_task", task_id=task_id, reason="no")
    again = await client.call_tool("cancel_task", {"task_id": task_id, "reason": "again"})
    assert "again" not in str(again.structured_content.get("cancel_requested"))
    shown = await ask(client, "get_task", task_id=task_id)
    assert (shown["state"], shown["cancel_requested"]) == ("cancelled", "no")
    assert "waits_for" not in shown
