"""get_task, list_tasks, wait_for_task."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from mcp import Client

from holdfast import Context, Handle, Holdfast, Retry
from holdfast.store.base import Listener
from tests.mcp.support import ask, refused, submitted, taken


async def test_a_task_is_shown_with_everything_that_matters(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client, plan=["look", "clean"], details={"host": "db1"}, agent_id="ops", key="k")
    await ask(client, "complete_step", lease=lease, key="look", output=1, facts=[{"key": "disk", "value": "92%"}])
    await ask(client, "report_progress", lease=lease, message="half way", percent=50)
    shown = await ask(client, "get_task", task_id=task_id)
    assert shown["task_id"] == task_id
    assert (shown["state"], shown["agent_id"], shown["key"]) == ("running", "ops", "k")
    assert shown["goal"] == "Free the disk"
    assert shown["uri"] == f"state://agents/ops/tasks/{task_id}"
    assert shown["version"] == 2
    assert shown["agent_state"]["plan"] == ["look", "clean"]
    assert shown["steps"] == [{"key": "look", "kind": "outside", "state": "completed", "output": 1}]
    assert shown["progress"][-1] == {"message": "half way", "by": "mcp:ada", "percent": 50}
    assert "result" not in shown
    await ask(client, "ask_human", lease=lease, question="Which disk?")
    shown = await ask(client, "get_task", task_id=task_id)
    assert shown["state"] == "waiting"
    assert [one["question"] for one in shown["questions"]] == ["Which disk?"]
    assert shown["why"]
    [asked] = await hold.approvals(task_id)
    assert shown["questions"][0]["id"] == asked.id


async def test_the_end_of_an_id_is_enough(client: Client) -> None:
    task_id = await submitted(client)
    assert (await ask(client, "get_task", task_id=task_id[-12:]))["task_id"] == task_id
    assert (await refused(client, "get_task", task_id="nowhere"))["kind"] == "NotFound"
    await submitted(client, "another")
    assert "-" in task_id
    assert (await client.call_tool("get_task", {"task_id": "-"})).is_error  # both have it


async def test_a_task_without_an_agent_has_no_state_to_show(hold: Holdfast, client: Client) -> None:
    async def plain(ctx: Context) -> None:
        del ctx

    hold.task(plain)
    handle: Handle[Any] = await hold.submit("plain")
    shown = await ask(client, "get_task", task_id=handle.id)
    assert "agent_state" not in shown


async def test_lists_are_filtered_and_the_newest_comes_first(client: Client) -> None:
    first = await submitted(client, "one", queue="a", agent_id="x")
    second = await submitted(client, "two", queue="b", agent_id="x")
    third, lease = await taken(client, "three", queue="b", agent_id="y")

    async def ids(**where: Any) -> list[str]:  # noqa: ANN401
        return [task["task_id"] for task in (await ask(client, "list_tasks", **where))["tasks"]]

    assert await ids() == [third, second, first]
    assert await ids(queue="b") == [third, second]
    assert await ids(agent_id="x") == [second, first]
    assert await ids(state="running") == [third]
    labelled = await submitted(client, "four", labels={"tenant": "acme", "kind": "nightly"})
    await submitted(client, "five", labels={"tenant": "globex"})
    assert await ids(labels={"tenant": "acme"}) == await ids(labels={"tenant": "acme", "kind": "nightly"}) == [labelled]
    assert await ids(labels={"tenant": "acme"}, state="running") == []
    assert (await ask(client, "get_task", task_id=labelled))["labels"] == {"tenant": "acme", "kind": "nightly"}
    assert "labels" not in await ask(client, "get_task", task_id=third)
    assert "equals sign" in (await refused(client, "list_tasks", labels={"a=b": "c"}))["error"]
    assert await ids(state="pending", queue="b") == [second]
    assert await ids(text="two") == [second]
    assert await ids(queue="c") == []
    await ask(client, "finish_task", lease=lease)
    assert await ids(state="completed") == [third]


async def test_pages_have_every_task_once(client: Client) -> None:
    made = {await submitted(client, f"{number}") for number in range(7)}
    seen: list[str] = []
    cursor: dict[str, str] = {}
    sizes: list[int] = []
    while True:
        page = await ask(client, "list_tasks", limit=3, **cursor)
        seen += [task["task_id"] for task in page["tasks"]]
        sizes.append(len(page["tasks"]))
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert sizes == [3, 3, 1]
    assert (set(seen), len(seen)) == (made, 7)
    assert "is not a cursor" in (await refused(client, "list_tasks", cursor="guess"))["error"]


async def test_waiting_for_a_task_that_has_ended_does_not_wait(client: Client) -> None:
    task_id, lease = await taken(client)
    await ask(client, "finish_task", lease=lease, result={"freed": "20 GB"})
    shown = await ask(client, "wait_for_task", task_id=task_id)
    assert (shown["done"], shown["state"], shown["result"]) == (True, "completed", {"freed": "20 GB"})


async def test_waiting_for_the_end(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client)
    waiting = asyncio.create_task(ask(client, "wait_for_task", task_id=task_id, timeout_seconds=55))
    await ask(client, "report_progress", lease=lease, message="nearly")
    await ask(client, "finish_task", lease=lease, failed="no disk")
    shown = await waiting
    assert (shown["done"], shown["state"]) == (True, "failed")
    assert shown["error"]["message"] == "no disk"
    assert shown["progress"][-1]["message"] == "nearly"
    assert "result" not in shown
    assert (await hold.handle(task_id).task()).state.is_terminal


async def test_waiting_for_a_change(hold: Holdfast, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id, lease = await taken(client)
    asked = await ask(client, "ask_human", lease=lease, question="Which disk?")
    listens = asyncio.Event()
    listen = hold.store.listen

    def listen_and_say_so() -> AbstractAsyncContextManager[Listener]:
        listens.set()
        return listen()

    monkeypatch.setattr(hold.store, "listen", listen_and_say_so)
    waiting = asyncio.create_task(ask(client, "wait_for_task", task_id=task_id, until="changed", timeout_seconds=55))
    await asyncio.wait_for(listens.wait(), 60)  # it has seen by now what is to change
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await hold.answer(asked["question_id"], "sdb", by="ann")
    shown = await waiting
    assert (shown["done"], shown["state"]) == (True, "pending")


@pytest.mark.parametrize("until", ["ended", "changed"])
async def test_when_the_time_is_up_it_is_reported(client: Client, until: str) -> None:
    task_id = await submitted(client)
    shown = await ask(client, "wait_for_task", task_id=task_id, timeout_seconds=0.05, until=until)
    assert (shown["done"], shown["state"]) == (False, "pending")
    assert (await ask(client, "wait_for_task", task_id=task_id, timeout_seconds=0))["done"] is False


async def test_a_change_that_is_not_the_end_is_not_waited_for(client: Client) -> None:
    task_id = await submitted(client)
    waiting = asyncio.create_task(ask(client, "wait_for_task", task_id=task_id, timeout_seconds=3))
    await asyncio.sleep(0.05)
    await ask(client, "claim_task", task_id=task_id)
    shown = await waiting
    assert (shown["done"], shown["state"]) == (False, "running")


async def test_internals_of_a_worker_are_not_shown(hold: Holdfast, client: Client) -> None:
    """An error has its words; the files and lines of the worker's machine are for its operator."""

    async def fail(ctx: Context) -> None:
        del ctx
        raise ValueError("no luck")

    hold.task(retry=Retry(max_attempts=1))(fail)
    handle: Handle[Any] = await hold.submit("fail")
    async with hold.worker():
        shown = await ask(client, "wait_for_task", task_id=handle.id, timeout_seconds=55)
    assert shown["error"]["message"] == "no luck"
    for answer in (shown, await ask(client, "get_task", task_id=handle.id)):
        assert "traceback" not in str(answer).lower()
        assert ".py" not in str(answer)
