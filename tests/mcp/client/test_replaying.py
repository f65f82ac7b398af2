"""What was recorded stays true, whatever the server lists by now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Holdfast, Retry, ScriptedModel, TaskFailed
from holdfast.agent.scripted import Line, call
from holdfast.mcp import Declared, ServerAway, ServerTools, tools
from holdfast.mcp.client.reach import Reach
from tests.agent.support import asked, register, tool_results
from tests.mcp.client.support import PATIENCE, World, old_command


def old_with(*names: str) -> ServerTools:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return tools(old_command(), env={"MISBEHAVE": json.dumps({"list": listed})})


async def test_a_tool_that_is_gone_by_the_next_attempt(tmp_path: Path) -> None:
    """It was called before; the attempt that goes on after a decision finds another server."""
    url = f"sqlite:///{tmp_path}/hold.db"
    script: list[Line] = [call("first"), call("ask_question", question="Go on?"), "done"]
    hold = Holdfast(url)
    agent = hold.register(Agent("agent", model=ScriptedModel(script), tools=[old_with("first", "second")]))
    async with hold:
        handle = await hold.submit(agent, "go")
        async with hold.worker():
            await asked(hold, handle)
    again, model = Holdfast(url), ScriptedModel(script)
    again.register(Agent("agent", model=model, tools=[old_with("second")]))
    async with again:
        await again.answer((await asked(again, again.handle(handle.id))).id, "yes", by="ann")
        async with again.worker():
            assert await again.handle(handle.id).result(timeout=PATIENCE) == "done"
    assert [spec.name for spec in model.requests[-1].tools if spec.name in {"first", "second"}] == ["second"]
    assert tool_results(model)[0] == ""


async def test_a_tool_is_undone_while_its_server_is_away(
    hold: Holdfast, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undoing needs what was declared, and not the server."""
    undone: list[tuple[Any, Any]] = []

    async def unsend(result: Any, arguments: Any) -> None:  # noqa: ANN401
        undone.append((result, arguments))

    async def away(*_: object, **__: object) -> None:
        raise ServerAway("it is away, and was never seen by this process")

    def stop(_: object) -> BaseException:
        monkeypatch.setattr(Reach, "listing", away)
        return RuntimeError("the model gives up")

    with world.over_http() as (url, _):
        source = tools(url, declare={"send": Declared(compensate=unsend)})
        agent, _ = register(hold, [call("send", to="ann"), stop], tools=[source], retry=Retry(max_attempts=1))
        handle = await hold.submit(agent, "go")
        async with hold.worker():
            with pytest.raises(TaskFailed):
                await handle.result(timeout=PATIENCE)
    assert undone == [({"sent": "ann", "copies": 1}, {"to": "ann"})]
