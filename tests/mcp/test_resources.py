"""Reading resources: every kind, its form, and what is not there."""

from __future__ import annotations

import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference

from holdfast import Holdfast
from holdfast.mcp.excerpts import text_of
from holdfast.model.canonical import canonical
from holdfast.model.checkpoints import checksum_of
from holdfast.model.operations import SaveCheckpoint
from holdfast.model.records import Checkpoint
from tests.engine.manage.state.support import write
from tests.mcp.support import Answer, ask, connected, read, submitted, taken


async def test_the_state_of_a_task_in_both_eras(hold: Holdfast, era: ConnectMode) -> None:
    async with connected(hold, era=era) as client:
        task_id = await submitted(client, plan=["look"], agent_id="a/b c")
        uri = f"state://agents/a%2Fb%20c/tasks/{task_id}"
        kept = await ask(client, "add_artifact", task_id=task_id, name="n", summary="s", content="c")
        shared = await read(client, uri)
        assert {name: shared[name] for name in ("uri", "agent_id", "task_id", "state", "plan", "version")} == {
            "uri": uri,
            "agent_id": "a/b c",
            "task_id": task_id,
            "state": "pending",
            "plan": ["look"],
            "version": 2,
        }
        assert shared["artifacts"] == [kept["uri"]]
        assert shared["agent_state"]["goal"] == "Free the disk"


async def pages(client: Client, uri: str, name: str) -> list[Answer]:
    found: list[Answer] = []
    next_uri: str | None = uri
    while next_uri is not None:
        page = await read(client, next_uri)
        assert len(text_of(page)) <= 200_000
        found += page[name]
        next_uri = page["next"]
    return found


@pytest.mark.parametrize(("count", "length"), [(230, 1), (120, 8000)], ids=["many", "large"])
async def test_the_journal_has_every_step_page_by_page(client: Client, count: int, length: int) -> None:
    task_id, lease = await taken(client)
    for number in range(count):
        await ask(client, "complete_step", lease=lease, key=f"{number}", output="x" * length)
    steps = await pages(client, f"state://agents/default/tasks/{task_id}/steps", "steps")
    assert [step["key"] for step in steps] == [f"outside:{number}" for number in range(count)]


async def test_a_journal_without_lines(client: Client) -> None:
    task_id = await submitted(client)
    page = await read(client, f"state://agents/default/tasks/{task_id}/steps")
    assert (page["steps"], page["next"]) == ([], None)
    assert (await read(client, f"state://agents/default/tasks/{task_id}/steps?after=99"))["steps"] == []


async def test_checkpoints_good_and_damaged(hold: Holdfast, client: Client) -> None:
    task_id = await submitted(client)
    body = canonical((await hold.state(task_id)).to_json())
    await write(
        hold,
        task_id,
        SaveCheckpoint(Checkpoint(number=1, position=0, version=1, body=body, checksum=checksum_of(body))),
        SaveCheckpoint(Checkpoint(number=2, position=0, version=1, body=body, checksum="wrong")),
        SaveCheckpoint(Checkpoint(number=3, position=0, version=1, body=b"{}", checksum=checksum_of(b"{}"), schema=99)),
    )
    uri = f"state://agents/default/tasks/{task_id}/checkpoints"
    good = await read(client, f"{uri}/1")
    assert (good["number"], good["version"], good["damaged"]) == (1, 1, None)
    assert good["agent_state"]["goal"] == "Free the disk"
    for number, words in ((2, "its checksum does not match"), (3, "its schema is 99")):
        damaged = await read(client, f"{uri}/{number}")
        assert words in damaged["damaged"]
        assert damaged["agent_state"] is None
    with pytest.raises(MCPError, match="the last ones are 1, 2, 3"):
        await client.read_resource(f"{uri}/4")
    ref = ResourceTemplateReference(type="ref/resource", uri=f"{uri}/{{number}}")
    completed = await client.complete(ref, {"name": "number", "value": ""}, context_arguments={"task_id": task_id})
    assert completed.completion.values == ["3", "2", "1"]


async def test_the_queue_is_in_the_order_of_claiming(client: Client) -> None:
    for goal, priority, queue in (("low", 0, "a"), ("high", 9, "a"), ("other", 5, "b")):
        await submitted(client, goal, priority=priority, queue=queue)
    whole = await read(client, "task://queue")
    assert [task["goal"] for task in whole["tasks"]] == ["high", "other", "low"]
    assert len(whole["counts"]) == 2
    one = await read(client, "task://queue?queue=a")
    assert [task["goal"] for task in one["tasks"]] == ["high", "low"]
    assert len(one["counts"]) == 1
    for goal in ("high", "low"):
        assert (await ask(client, "claim_task", queues=["a"]))["task"]["goal"] == goal


async def test_a_long_queue_has_pages(client: Client) -> None:
    made = {await submitted(client, f"{number}", queue="a b") for number in range(53)}
    waiting = await pages(client, "task://queue?queue=a%20b", "tasks")
    assert [len(waiting), {task["task_id"] for task in waiting}] == [53, made]
    assert len(await pages(client, "task://queue", "tasks")) == 53
    with pytest.raises(MCPError, match="not a cursor"):
        await client.read_resource("task://queue?after=guess")


async def test_what_i_hold_and_what_others_hold(hold: Holdfast, client: Client) -> None:
    assert await read(client, "task://current") == {
        "caller": "ada",
        "yours": [],
        "running": [],
        "running_count": 0,
    }
    mine, _ = await taken(client, "mine")
    async with connected(hold, "bob") as bob:
        theirs, _ = await taken(bob, "theirs")
        seen = await read(bob, "task://current")
        assert [task["task_id"] for task in seen["yours"]] == [theirs]
        assert [task["task_id"] for task in seen["running"]] == [mine]
    seen = await read(client, "task://current")
    assert [task["task_id"] for task in seen["yours"]] == [mine]


async def test_what_is_not_there_is_the_protocols_error(client: Client, hold: Holdfast, era: ConnectMode) -> None:
    task_id = await submitted(client, agent_id="ops")
    async with connected(hold, era=era) as other:
        for uri in (
            "state://agents/ops/tasks/nowhere",
            f"state://agents/someone/tasks/{task_id}",  # under another agent's name
            f"state://agents/ops/tasks/{task_id[:8]}",  # only whole ids
            f"state://agents/ops/tasks/{task_id}/checkpoints/1",
            f"state://agents/ops/tasks/{task_id}/steps?after=x",
            f"state://agents/ops/tasks/{task_id}/approve",
            "artifact://nowhere",
            "artifact://" + "0" * 64,
            "fact://nothing",
            "task://nowhere",
            "file:///etc/passwd",
            "state://agents/%00/tasks/%00",
            "state://agents/%ED%A0%80/tasks/%ED%A0%80",
            "artifact://%00",
            "fact://%00",
        ):
            with pytest.raises(MCPError) as refusal:
                await other.read_resource(uri)
            assert refusal.value.error.code == -32602, (uri, refusal.value)
            assert refusal.value.error.data == {"uri": uri}
            assert " ;" not in refusal.value.error.message


async def test_facts(client: Client) -> None:
    await ask(client, "remember", entity="a/b c", attribute="disk", value=1)
    known = await read(client, "fact://a%2Fb%20c")
    assert known["entity"] == "a/b c"
    assert [(fact["attribute"], fact["value"]) for fact in known["facts"]] == [("disk", 1)]
