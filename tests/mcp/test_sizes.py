"""Answers fit into a model's context, whatever is stored, and what is needed to go on is never cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from holdfast import Holdfast
from holdfast.mcp.excerpts import MAX_ANSWER, fitted, text_of
from tests.mcp.support import ask, read, refused, submitted

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=20), inner, max_size=30),
    max_leaves=60,
)


@given(st.dictionaries(st.text(max_size=20), JSON, max_size=20), st.integers(300, 5000))
def test_whatever_it_is_it_fits_or_is_untouched(value: dict[str, Any], room: int) -> None:
    cut = fitted(value, room)
    if len(text_of(value)) <= room:
        assert cut == value
    else:
        assert "truncated" in cut
        assert len(text_of(cut)) <= room
    assert json.loads(text_of(cut)) == cut


def size(answer: dict[str, Any]) -> int:
    return len(text_of(answer))


@pytest.mark.parametrize(
    "details",
    [
        "x" * 100_000,
        ["x" * 50] * 5000,
        {f"key{number:05}": "v" * 30 for number in range(3000)},
        {"deep": {f"k{number}": [{"a": ["b" * 100] * 10}] * 10 for number in range(50)}},
        [[number] * 50 for number in range(500)],
    ],
    ids=["long", "list", "object", "deep", "numbers"],
)
async def test_a_claim_of_something_large_still_has_its_lease(client: Client, details: Any) -> None:  # noqa: ANN401
    answer = await ask(client, "submit_task", goal="Read it", details=details, take=True)
    assert size(answer) <= MAX_ANSWER
    assert "truncated" in answer
    task_id, lease = answer["task_id"], answer["lease"]
    await ask(client, "release_task", lease=lease)  # it is whole
    claimed = await ask(client, "claim_task")
    assert (claimed["task_id"], size(claimed) <= MAX_ANSWER) == (task_id, True)
    await ask(client, "finish_task", lease=claimed["lease"], result=details)
    shown = await ask(client, "get_task", task_id=task_id)
    assert shown["uri"] in shown["truncated"]  # where the rest is
    for one in (shown, await ask(client, "wait_for_task", task_id=task_id)):
        assert size(one) <= MAX_ANSWER
        assert (one["task_id"], one["state"]) == (task_id, "completed")
        assert "truncated" in one


async def test_a_large_state_is_cut_and_its_version_is_not(client: Client) -> None:
    task_id = await submitted(client, plan=[f"step {number} {'x' * 200}" for number in range(300)])
    for number in range(4):
        await ask(
            client,
            "append_facts",
            task_id=task_id,
            facts=[{"key": f"{number}-{one}", "value": "v" * 500} for one in range(100)],
        )
    shown = await ask(client, "get_task", task_id=task_id)
    assert size(shown) <= MAX_ANSWER
    assert (shown["version"], shown["task_id"]) == (5, task_id)
    conflict = await refused(client, "patch_state", task_id=task_id, version=1, patch={"set_flags": ["x"]})
    assert size(conflict) <= MAX_ANSWER
    assert conflict["newer"]["version"] == 5
    whole = await read(client, shown["uri"])
    assert len(text_of(whole)) <= 200_000
    assert whole["version"] == 5
    assert "truncated" in whole


async def test_pages_of_long_goals_have_every_task(client: Client) -> None:
    made = {await submitted(client, f"{number} {'x' * 290}") for number in range(40)}
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(40):
        page = await ask(client, "list_tasks", limit=50, **cursor)
        assert size(page) <= MAX_ANSWER
        assert "truncated" not in page
        seen += [task["task_id"] for task in page["tasks"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert (set(seen), len(seen)) == (made, 40)


async def test_recall_of_large_facts_fits(client: Client) -> None:
    for number in range(30):
        await ask(client, "remember", entity="e", attribute=f"a{number}", value="v" * 2000)
    answer = await ask(client, "recall", entity="e", limit=50)
    assert size(answer) <= MAX_ANSWER
    assert "truncated" in answer or len(answer["facts"]) < 30


async def test_an_error_fits_too(hold: Holdfast, client: Client) -> None:
    answer = await ask(client, "submit_task", goal="x", take=True)
    await ask(client, "complete_step", lease=answer["lease"], key="k", output="x" * 50_000)
    said = await refused(client, "complete_step", lease=answer["lease"], key="k", output="y" * 50_000)
    assert len(said["error"]) < 1000
    assert len((await refused(client, "get_task", task_id="z" * 100_000))["error"]) < 2000
    assert await hold.store.get(answer["task_id"]) is not None


async def test_what_is_too_large_is_refused_at_every_door(client: Client) -> None:
    task_id = await submitted(client)
    lease = (await ask(client, "claim_task", task_id=task_id))["lease"]
    text, value = "x" * 8_001, "x" * 16_000
    doors: list[tuple[str, dict[str, Any]]] = [
        ("patch_state", {"task_id": task_id, "version": 1, "patch": {"replace_plan": [text]}}),
        ("patch_state", {"task_id": task_id, "version": 1, "patch": {"add_questions": [text]}}),
        ("patch_state", {"task_id": task_id, "version": 1, "patch": {"set_flags": [text]}}),
        ("patch_state", {"task_id": task_id, "version": 1, "patch": {"append_facts": [{"key": "k", "value": value}]}}),
        ("append_facts", {"task_id": task_id, "facts": [{"key": "k", "value": value}]}),
        ("append_facts", {"task_id": task_id, "facts": [{"key": "k", "value": value}], "lease": lease}),
        ("complete_step", {"lease": lease, "key": "s", "facts": [{"key": "k", "value": value}]}),
        ("release_task", {"lease": lease, "facts": [{"key": "k", "value": value}]}),
        ("submit_task", {"goal": "x" * 256_001}),
        ("submit_task", {"goal": "Look", "plan": [text]}),
        ("remember", {"entity": "e", "attribute": "a", "value": "x" * 64_000}),
    ]
    for tool, arguments in doors:
        answer = await refused(client, tool, **arguments)
        assert "are allowed" in answer["error"], (tool, answer)
        assert len(answer["error"]) < 400, "the refusal does not repeat it"
    shown = await ask(client, "get_task", task_id=task_id)
    assert (shown["version"], shown["state"]) == (1, "running"), "nothing was changed"
