"""A tool that tries to end the process ends nothing but its own call."""

from __future__ import annotations

import sys

import pytest

from holdfast import Context, Decision, Holdfast, tool
from holdfast.agent.scripted import call
from holdfast.agent.tool import Tool
from tests.agent.support import PATIENCE, register, tool_results
from tests.engine.support import until


def exits(*, is_async: bool, is_pure: bool) -> Tool:
    def blocking() -> str:
        """Act."""
        sys.exit("usage: act")

    async def on_the_loop() -> str:
        """Act."""
        sys.exit("usage: act")

    function = on_the_loop if is_async else blocking
    if is_pure:
        return tool(name="act", risk="read_only")(function)
    return tool(name="act", settle=0)(function)


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_pure_tool_that_exits_is_an_error_for_the_model(hold: Holdfast, is_async: bool, at_once: int) -> None:
    @hold.task
    async def neighbour(_ctx: Context) -> str:
        return "fine"

    act = exits(is_async=is_async, is_pure=True)
    act.retry = act.retry.__class__(max_attempts=1)
    agent, model = register(hold, [[call("act")] * at_once, "done"], tools=[act])
    async with hold.worker():
        task = await hold.submit(agent, "go")
        assert await task.result(timeout=PATIENCE) == "done"
        other = await hold.submit(neighbour)
        assert await other.result(timeout=PATIENCE) == "fine"
    assert len(tool_results(model)) == at_once
    assert all("SystemExit" in said for said in tool_results(model))


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_once_tool_that_exits_is_in_doubt(hold: Holdfast, is_async: bool, at_once: int) -> None:
    @hold.task
    async def neighbour(_ctx: Context) -> str:
        return "fine"

    agent, model = register(hold, [[call("act")] * at_once, "done"], tools=[exits(is_async=is_async, is_pure=False)])
    async with hold.worker():
        task = await hold.submit(agent, "go")

        async def is_asked() -> bool:
            return sum(doubt.approval_id is not None for doubt in await hold.doubts(task)) == at_once

        await until(is_asked, patience=PATIENCE)
        other = await hold.submit(neighbour)
        assert await other.result(timeout=PATIENCE) == "fine"
        for doubt in await hold.doubts(task):
            await hold.resolve(doubt, Decision.HAPPENED, result="it did", by="ann")
        assert await task.result(timeout=PATIENCE) == "done"
    assert tool_results(model) == ["it did"] * at_once
