"""The protocol's own tasks: a handle for clients that can follow one, and no way to answer for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim, advertise
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Request, Result
from pydantic import BaseModel, ConfigDict

from holdfast import Context, Holdfast, Retry, TaskFailed, TaskState
from holdfast.mcp.protocol_tasks import EXTENSION
from holdfast.service.access import READ_ONLY, AccessScope
from tests.mcp.support import ask, client_of, connected, refused, server_of
from tests.service.handover.support import Outside


class TaskHandle(Result):
    """What comes in place of an answer."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"


class Follows(ClientExtension):
    """A client that knows the extension. It leaves the handle as it is, for the test to look at."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._show)]

    async def _show(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        assert context.tool_name == "submit_task"
        return CallToolResult(content=[], structured_content={"handle": handle.model_extra})


class Anything(BaseModel):
    """Whatever comes back."""

    model_config = ConfigDict(extra="allow")


async def send(client: Client, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = await client.session.send_request(Request[dict[str, Any], str](method=method, params=params), Anything)
    found: dict[str, Any] = answer.model_extra or {}
    return found


def following(hold: Holdfast, **options: Any) -> Any:  # noqa: ANN401 - a client
    return client_of(server_of(hold, **options), extensions=[Follows()])


async def handle_of(client: Client, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    result = await client.call_tool("submit_task", {"goal": "Free the disk", "follow": True, **options})
    assert not result.is_error, result.structured_content
    handle: dict[str, Any] = result.structured_content["handle"]
    return handle


async def test_a_follower_gets_a_handle(hold: Holdfast) -> None:
    async with following(hold) as client:
        handle = await handle_of(client)
        assert handle["status"] == "working"
        assert handle["pollIntervalMs"] > 0
        assert handle["ttlMs"] is None
        assert await hold.store.get(handle["taskId"]) is not None  # the handle is the id of our task
        assert (await send(client, "tasks/get", taskId=handle["taskId"]))["createdAt"] == handle["createdAt"]


async def test_without_follow_every_client_is_answered_at_once(hold: Holdfast) -> None:
    async with following(hold) as client:
        assert (await ask(client, "submit_task", goal="Free the disk"))["created"] is True


async def test_taking_is_never_a_handle(hold: Holdfast) -> None:
    async with following(hold) as client:
        assert (await ask(client, "submit_task", goal="Free the disk", take=True))["lease"]
        await refused(client, "submit_task", goal="Free the disk", take=True, follow=True)
        assert len((await hold.store.find()).items) == 1


async def test_who_does_not_know_the_extension_is_answered_as_ever(hold: Holdfast, era: ConnectMode) -> None:
    async with connected(hold, era=era) as client:
        answer = await ask(client, "submit_task", goal="Free the disk", follow=True)
        assert answer["created"] is True
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(MCPError) as refusal:
                await send(client, method, taskId=answer["task_id"])
            assert refusal.value.error.code == -32021
    assert (await hold.handle(answer["task_id"]).task()).state is TaskState.PENDING


async def test_nor_does_a_client_of_the_older_era_that_names_it_get_a_handle(hold: Holdfast) -> None:
    async with client_of(server_of(hold), "legacy", extensions=[advertise(EXTENSION)]) as client:
        assert (await ask(client, "submit_task", goal="Free the disk", follow=True))["created"] is True


async def test_the_server_says_that_it_knows_the_extension(hold: Holdfast) -> None:
    async with following(hold) as client:
        assert client.server_capabilities is not None
        assert EXTENSION in (client.server_capabilities.extensions or {})


async def test_a_refusal_is_a_refusal(hold: Holdfast) -> None:
    async with following(hold) as client:
        assert (await refused(client, "submit_task", goal=" ", follow=True))["kind"] == "InvalidValue"


async def test_how_a_task_stands(hold: Holdfast) -> None:
    ada = Outside(hold, "ada")
    async with following(hold) as client:
        task_id = (await handle_of(client))["taskId"]

        async def got() -> dict[str, Any]:
            return await send(client, "tasks/get", taskId=task_id)

        assert ((await got())["status"], "result" in await got()) == ("working", False)
        taken = await ada.take(task_id)
        assert (await got())["status"] == "working"
        asked = await ada.holding(taken.lease).ask("Which disk?")
        waiting = await got()
        assert waiting["status"] == "working"  # never input_required: a client is an agent
        assert "inputRequests" not in waiting
        assert waiting["statusMessage"]
        await hold.answer(asked.id, "sdb", by="ann")
        taken = await ada.take(task_id)
        await ada.holding(taken.lease).finish({"freed": "20 GB"})
        done = await got()
        assert done["status"] == "completed"
        assert done["result"]["structuredContent"]["result"] == {"freed": "20 GB"}
        assert not done["result"].get("isError")


async def test_a_task_that_failed_is_a_call_that_came_back_with_an_error(hold: Holdfast) -> None:
    async def fail(ctx: Context, goal: str) -> None:
        del ctx, goal
        raise ValueError("no luck")

    hold.task(retry=Retry(max_attempts=1))(fail)
    async with following(hold) as client:
        handle = await handle_of(client, name="fail")
        async with hold.worker():
            with pytest.raises(TaskFailed, match="no luck"):
                await hold.handle(handle["taskId"]).result(60)
        done = await send(client, "tasks/get", taskId=handle["taskId"])
    assert done["status"] == "completed"
    assert done["result"]["isError"] is True
    assert "no luck" in done["result"]["content"][0]["text"]
    assert "Traceback" not in str(done)


async def test_cancelling(hold: Holdfast) -> None:
    async with following(hold) as client:
        task_id = (await handle_of(client))["taskId"]
        await send(client, "tasks/cancel", taskId=task_id)
        cancelled = await send(client, "tasks/get", taskId=task_id)
    assert cancelled["status"] == "cancelled"
    assert "result" not in cancelled
    assert (await hold.handle(task_id).task()).state is TaskState.CANCELLED


async def test_an_update_is_acknowledged_and_changes_nothing(hold: Holdfast) -> None:
    ada = Outside(hold, "ada")
    async with following(hold) as client:
        task_id = (await handle_of(client))["taskId"]
        asked = await ada.holding((await ada.take(task_id)).lease).ask("Which disk?")
        before = await hold.store.get(task_id)
        answers = {asked.id: {"action": "accept", "content": {"answer": "sdb"}}}
        await send(client, "tasks/update", taskId=task_id, inputResponses=answers)
        assert await hold.store.get(task_id) == before
        assert [one.id for one in await hold.approvals(task_id)] == [asked.id]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("task_id", ["nowhere", "", "\0", "x" * 5000], ids=["unknown", "empty", "nul", "long"])
async def test_an_unknown_handle(hold: Holdfast, method: str, task_id: str) -> None:
    async with following(hold) as client:
        with pytest.raises(MCPError) as refusal:
            await send(client, method, taskId=task_id)
        assert refusal.value.error.code == -32602
        assert len(refusal.value.error.message) < 1000


async def test_scopes_hold_here_too(hold: Holdfast) -> None:
    task = await Outside(hold, "ada").offer()
    async with following(hold, scopes=READ_ONLY) as client:
        assert (await send(client, "tasks/get", taskId=task.id))["status"] == "working"
        with pytest.raises(MCPError, match="it needs the scope 'submit'"):
            await send(client, "tasks/cancel", taskId=task.id)
    async with following(hold, scopes=frozenset({AccessScope.SUBMIT})) as client:
        with pytest.raises(MCPError, match="it needs the scope 'read'"):
            await send(client, "tasks/get", taskId=task.id)
    assert (await hold.handle(task.id).task()).state is TaskState.PENDING
