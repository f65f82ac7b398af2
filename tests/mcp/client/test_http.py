"""A server at a URL."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, TaskState
from holdfast.agent.scripted import Line, ScriptedCall, call
from holdfast.mcp import AnswerUnclear, CallRefused, Declared, ServerAway, tools
from holdfast.mcp.client import reach as reaching
from holdfast.mcp.client.reach import reach
from tests.agent.support import register, tool_results
from tests.engine.support import until
from tests.mcp.client.support import PATIENCE, World, finished, old_over_http
from tests.postgres_server import free_port


async def test_an_agent_calls_the_tools_of_a_server(hold: Holdfast, world: World) -> None:
    with world.over_http() as (url, _):
        agent, model = register(hold, [call("send", to="ann"), call("long_text"), "done"], tools=[tools(url)])
        handle = await finished(hold, agent)
    assert world.called == ["send", "long_text"]
    [step] = [step for step in await hold.store.steps(handle.id) if step.key == "send:1.0"]
    assert world.calls[0]["effect_id"] == step.effect_id
    assert tool_results(model)[0] == '{"copies": 1, "sent": "ann"}'
    assert "2700000 bytes, kept as artifact" in tool_results(model)[1]


async def test_an_old_server_with_sessions_and_a_token(hold: Holdfast) -> None:
    with old_over_http({"token": "s3cret-of-the-server"}) as url:
        source = tools(url, token="s3cret-of-the-server")  # noqa: S106
        agent, model = register(hold, [call("echo", text="hello"), "done"], tools=[source])
        await finished(hold, agent)
        assert tool_results(model) == ["hello"]
        with pytest.raises(ServerAway, match="answered 401"):
            await tools(url, token="another").listed()  # noqa: S106


async def test_a_session_that_the_server_has_forgotten_is_opened_again(hold: Holdfast) -> None:
    """Its answer to an unknown session proves that nothing was called: not even a ``once`` call is in doubt."""
    with old_over_http() as url:
        script: list[Line] = [call("echo", text="forget me"), call("echo", text="still there"), "done"]
        agent, model = register(hold, script, tools=[tools(url)])
        handle = await finished(hold, agent)
        assert tool_results(model) == ["forget me", "still there"]
        assert await hold.doubts(handle) == []


async def test_a_call_to_a_port_without_a_server_was_not_made(hold: Holdfast, world: World) -> None:
    """The server is stopped between two calls: the second one is reported as not made, and the model continues."""
    stop, stopped = asyncio.Event(), asyncio.Event()

    async def pause(_: object) -> ScriptedCall:
        stop.set()
        await stopped.wait()
        return call("send", to="bob")

    with world.over_http() as (url, process):
        agent, model = register(hold, [call("send", to="ann"), pause, "done"], tools=[tools(url)])
        handle = await hold.submit(agent, "go")
        async with hold.worker():
            await stop.wait()
            process.kill()
            process.wait()
            stopped.set()
            await handle.result(timeout=PATIENCE)
    assert world.called == ["send"]
    assert tool_results(model)[1].startswith("Error: ServerAway: the MCP server 127.0.0.1:")
    assert await hold.doubts(handle) == []


async def test_one_call_that_breaks_does_not_take_the_others_with_it() -> None:
    """The SDK alone would end the whole connection."""
    with old_over_http() as url:
        source = tools(url)
        [echo] = await source.listed()
        first = reach(source._server)._connection
        waiting = [asyncio.create_task(echo({"text": "wait"}, effect_id=str(number))) for number in range(2)]
        await until(lambda: first is not None and first._busy == 2)
        breaking = [echo({"text": order}, effect_id=order) for order in ("hang up", "break off")]
        for broken in await asyncio.gather(*breaking, return_exceptions=True):
            assert isinstance(broken, AnswerUnclear), broken
        assert reach(source._server)._connection is first
        assert await echo({"text": "go"}, effect_id="go") == "go"
        assert reach(source._server)._connection is not first
        assert await asyncio.gather(*waiting) == ["wait", "wait"]
        await until(lambda: first is not None and first._owner is not None and first._owner.done())


@pytest.mark.parametrize("order", ["resume", "ask"])
async def test_what_is_sent_after_a_call_proves_nothing_about_it(order: str) -> None:
    """The stream of its answer ends, and asking for the rest, or answering back, is refused."""
    with old_over_http() as url:
        [echo] = await tools(url).listed()
        with pytest.raises(AnswerUnclear):
            await echo({"text": order}, effect_id="1")
        assert await echo({"text": "calls"}, effect_id="2") == f"{order} calls"


async def test_each_request_has_a_connection_of_its_own() -> None:
    """One that is kept alive may be closed just when it is used again: an avoidable doubt."""
    with old_over_http() as url:
        [echo] = await tools(url).listed()
        assert await echo({"text": "port"}, effect_id="1") != await echo({"text": "port"}, effect_id="2")


async def test_a_long_answer_in_a_stream_is_not_lost() -> None:
    with old_over_http() as url:
        [echo] = await tools(url).listed()
        assert await echo({"text": "stream"}, effect_id="1") == "x" * 3_000_000


async def test_a_task_waits_for_a_server_that_is_away(hold: Holdfast, world: World) -> None:
    """It holds no worker meanwhile, and says what it waits for."""
    port = free_port()
    source = tools(f"http://127.0.0.1:{port}/mcp", declare={"search": Declared(risk="read_only")})
    agent, model = register(hold, [call("search", query="cats"), "done"], tools=[source])
    handle = await hold.submit(agent, "go")
    async with hold.worker():

        async def is_waiting() -> bool:
            steps = await hold.store.steps(handle.id)
            key = f"holdfast:tools:127.0.0.1:{port}/mcp:1"
            return any((step.key, step.kind) == (key, "tools") and step.retry_at is not None for step in steps)

        await until(is_waiting, patience=PATIENCE)
        assert model.requests == []
        with world.over_http(port):
            await handle.result(timeout=PATIENCE)
    assert tool_results(model) == ["nothing about cats"]
    assert (await handle.task()).state is TaskState.COMPLETED
    assert (await handle.task()).attempts == 0


async def test_an_agent_goes_on_while_a_server_it_knows_is_restarted(
    hold: Holdfast, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A tool list is kept: the attempt begins, and only a call needs the server."""
    monkeypatch.setattr(reaching, "FRESH", -1.0)
    port = free_port()
    source = tools(f"http://127.0.0.1:{port}/mcp")
    agent, _ = register(hold, ["done"], tools=[source])
    with world.over_http(port):
        await finished(hold, agent)
    await finished(hold, agent)
    assert "the tools of its last listing are used" in caplog.text


async def test_what_a_server_lists_is_looked_at_again_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.over_http() as (url, _):
        source = tools(url)
        first = await source.listed()
        assert await source.listed() is first
        monkeypatch.setattr(reaching, "FRESH", -1.0)
        assert await source.listed() is not first


async def test_a_tool_that_the_server_does_not_know_is_a_refusal() -> None:
    refusal = {"error": {"code": -32602, "message": "Unknown tool: echo"}}
    with old_over_http({"answer": refusal}) as url:
        [tool] = await tools(url).listed()
        with pytest.raises(CallRefused, match="refused the call of echo: Unknown tool: echo"):
            await tool({"text": "x"}, effect_id="1")
