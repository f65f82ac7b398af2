"""What an error proves about a call, and what becomes of a ``once`` call then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from holdfast import Decision, Happened, Holdfast, Retry, StepState
from holdfast.agent.scripted import call
from holdfast.agent.tool import ToolError
from holdfast.mcp import AnswerUnclear, CallRefused, Declared, ServerAway, tools
from holdfast.mcp.client.dispatch import CURRENT, Sending
from holdfast.mcp.client.error_meaning import meaning_of
from holdfast.mcp.client.health import Health
from holdfast.mcp.client.servers import Endpoint
from holdfast.mcp.client.transports import transport_to
from holdfast.model.proof import proves_absence
from tests.agent.support import register, tool_results
from tests.engine.effects.till import Till
from tests.engine.support import until
from tests.mcp.client.support import PATIENCE, World, finished, old_command, old_over_http

TABLE = [
    # Not sent, whatever was raised.
    (MCPError(-32000, "Connection closed"), Sending(), ServerAway),
    (RuntimeError("what?"), Sending(), ServerAway),
    # Refused by the protocol.
    (MCPError(-32601, "no such method"), Sending(is_sent=True), CallRefused),
    (MCPError(-32602, "no such tool"), Sending(is_sent=True, status=400), CallRefused),
    (MCPError(-32020, "header mismatch"), Sending(is_sent=True, status=400), CallRefused),
    # Not let in.
    (MCPError(-32603, "an error response"), Sending(is_sent=True, status=401), ServerAway),
    (MCPError(-32600, "Session terminated"), Sending(is_sent=True, status=404), ServerAway),
    (MCPError(-32603, "an error response"), Sending(is_sent=True, status=429), ServerAway),
    # Unknown.
    (MCPError(-32000, "Connection closed"), Sending(is_sent=True), AnswerUnclear),
    (MCPError(-32603, "boom"), Sending(is_sent=True), AnswerUnclear),
    (MCPError(0, "boom"), Sending(is_sent=True, status=200), AnswerUnclear),
    (MCPError(-32700, "cannot parse the answer"), Sending(is_sent=True, status=200), AnswerUnclear),
    (MCPError(-32600, "answered with 202"), Sending(is_sent=True, status=202), AnswerUnclear),
    (MCPError(-32603, "an error response"), Sending(is_sent=True, status=502), AnswerUnclear),
    (MCPError(-32603, "an error response"), Sending(is_sent=True, status=409), AnswerUnclear),
    (MCPError(-32603, "an error response"), Sending(is_sent=True, status=408), AnswerUnclear),
    (ValueError("not a result"), Sending(is_sent=True, status=200), AnswerUnclear),
]


@pytest.mark.parametrize(("error", "sending", "kind"), TABLE)
def test_the_table(error: Exception, sending: Sending, kind: type[Exception]) -> None:
    meaning = meaning_of(error, sending, server="there", tool="send")
    assert type(meaning) is kind
    assert proves_absence(meaning) is (kind is not AnswerUnclear)


async def test_a_call_that_was_redirected_may_have_been_made() -> None:
    """The server makes it and redirects to another path, which does not exist or refuses the request."""
    message = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"name": "send"})
    moved = "HTTP/1.1 307 So\r\nContent-Length: 0\r\nConnection: close\r\nLocation: /mcp/\r\n\r\n"
    missing = "HTTP/1.1 404 So\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    for answers in ([moved], [moved, missing]):
        sending = Sending("tools/call")
        token = CURRENT.set(sending)
        try:
            with Till(*answers) as server:
                way = transport_to(Endpoint(f"{server.url}/mcp"), connect=PATIENCE, health=Health())
                async with way as (read, write):
                    await write.send(SessionMessage(message))
                    await read.receive()
        finally:
            CURRENT.reset(token)
        assert server.charges == len(answers)
        assert type(meaning_of(RuntimeError("lost"), sending, server="there", tool="send")) is AnswerUnclear


async def test_a_server_that_dies_amid_a_once_call_leaves_it_in_doubt(hold: Holdfast, world: World) -> None:
    declared = {"fall_over": Declared(timeout=5, settle=0.1, retry=Retry(max_attempts=5))}
    agent, model = register(hold, [call("fall_over"), "done"], tools=[tools(world.command, declare=declared)])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        await decided(hold, handle, Decision.HAPPENED, result="it fell over")
        await handle.result(timeout=PATIENCE)
    assert world.called == ["fall_over"]
    assert tool_results(model) == ["it fell over"]


async def test_a_server_that_dies_amid_a_pure_call_is_asked_again(hold: Holdfast, world: World) -> None:
    declared = {"fall_over": Declared(risk="read_only", retry=Retry(max_attempts=3, initial=0.01))}
    agent, model = register(hold, [call("fall_over"), "done"], tools=[tools(world.command, declare=declared)])
    await finished(hold, agent)
    assert world.called == ["fall_over"] * 3
    assert tool_results(model)[0].startswith("Error: AnswerUnclear: the MCP server python")


async def test_an_answer_that_is_lost_on_the_way_is_a_doubt_that_a_reconcile_clears_up(hold: Holdfast) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    async def was_sent(effect_id: str, arguments: dict[str, Any]) -> Happened:
        asked.append((effect_id, arguments))
        return Happened("it was")

    declared = {"echo": Declared(timeout=5, settle=0.1, reconcile=was_sent)}
    with old_over_http() as url:
        source = tools(url, declare=declared)
        agent, model = register(hold, [call("echo", text="hang up"), "done"], tools=[source])
        handle = await finished(hold, agent)
    [step] = [step for step in await hold.store.steps(handle.id) if step.key == "echo:1.0"]
    assert asked == [(step.effect_id, {"text": "hang up"})]
    assert tool_results(model) == ["it was"]


async def test_a_call_that_takes_too_long_is_in_doubt(hold: Holdfast, world: World) -> None:
    source = tools(world.command, declare={"wait_and_send": Declared(timeout=4, settle=0.1)})
    agent, model = register(hold, [call("wait_and_send", to="ann"), call("send", to="bob"), "done"], tools=[source])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        await decided(hold, handle, Decision.ABANDON)
        await handle.result(timeout=PATIENCE)
    assert world.called == ["wait_and_send", "send"]  # on the same connection, which still works
    assert tool_results(model)[1] == '{"copies": 1, "sent": "bob"}'


# What a tool says about itself: isError


async def test_a_failure_that_a_once_tool_reports_is_its_answer(hold: Holdfast, world: World) -> None:
    agent, model = register(hold, [call("fail", why="no paper"), "done"], tools=[tools(world.command)])
    handle = await finished(hold, agent)
    assert world.called == ["fail"]
    [said] = tool_results(model)
    assert said.startswith('{"error": ')
    assert "no paper" in said
    [step] = [step for step in await hold.store.steps(handle.id) if step.key == "fail:1.0"]
    assert step.state is StepState.COMPLETED
    assert await hold.doubts(handle) == []


@pytest.mark.parametrize("declared", [Declared(risk="read_only"), Declared(effect="once", errors="absent")])
async def test_a_failure_that_means_that_nothing_was_done(hold: Holdfast, world: World, declared: Declared) -> None:
    source = tools(world.command, declare={"fail": declared})
    agent, model = register(hold, [call("fail", why="no paper"), "done"], tools=[source])
    handle = await finished(hold, agent)
    assert world.called == ["fail"]  # the model decides about it, and it is not tried again
    [said] = tool_results(model)
    assert said.startswith("Error: ToolError: ")
    assert "no paper" in said
    [step] = [step for step in await hold.store.steps(handle.id) if step.key == "fail:1.0"]
    assert step.state is StepState.FAILED


async def test_a_failure_that_leaves_a_doubt(hold: Holdfast, world: World) -> None:
    source = tools(world.command, declare={"fail": Declared(errors="doubt", timeout=5, settle=0.1)})
    agent, _ = register(hold, [call("fail", why="half done"), "done"], tools=[source])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        await decided(hold, handle, Decision.ABANDON)
        await handle.result(timeout=PATIENCE)
    assert world.called == ["fail"]


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32603, "message": "boom"}},
        {"result": {"content": "nonsense"}},
        {"result": {"resultType": "input_required", "requestState": "x"}},
    ],
)
async def test_answers_that_say_nothing(answer: dict[str, Any]) -> None:
    [tool] = await tools(old_command(), env={"MISBEHAVE": json.dumps({"answer": answer})}).listed()
    with pytest.raises(AnswerUnclear):
        await tool({"text": "x"}, effect_id="1")


async def test_a_result_that_is_not_what_the_tool_promised_is_still_its_result() -> None:
    """It was made. To throw the answer away would be to forget that."""
    promised = {
        "name": "echo",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }
    answer = {"result": {"content": [], "structuredContent": {"n": "five"}}}
    source = tools(old_command(), env={"MISBEHAVE": json.dumps({"list": [promised], "answer": answer})})
    [tool] = await source.listed()
    assert await tool({}, effect_id="1") == {"n": "five"}


async def test_errors_are_tool_errors_of_pure_tools() -> None:
    failed = {"result": {"isError": True, "content": [{"type": "text", "text": "no"}]}}
    source = tools(
        old_command(),
        declare={"echo": Declared(risk="read_only")},
        env={"MISBEHAVE": json.dumps({"answer": failed})},
    )
    [tool] = await source.listed()
    with pytest.raises(ToolError, match="no"):
        await tool({"text": "x"}, effect_id="1")


async def decided(hold: Holdfast, handle: Any, decision: Decision, result: object = None) -> None:  # noqa: ANN401
    """Decide about the one doubt of a task, once a person is asked."""

    async def is_asked() -> bool:
        return bool([doubt for doubt in await hold.doubts(handle) if doubt.approval_id])

    await until(is_asked, patience=PATIENCE)
    [doubt] = await hold.doubts(handle)
    await hold.resolve(doubt, decision, result=result, by="ann")
