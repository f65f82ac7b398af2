"""Arguments and results at the limits of what can be stored: the model gets an error, and no worker dies."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, Holdfast, ScriptedModel, tool
from holdfast.agent.scripted import ScriptedCall, call
from holdfast.agent.tool import BadArguments
from tests.agent.support import finished, register, tool_results

NAN = '{"x": NaN}'
DEEP = '{"x": ' + "[" * 100 + "]" * 100 + "}"
ENDLESS = '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize("written", [NAN, DEEP, ENDLESS], ids=["nan", "deep", "endless"])
@pytest.mark.parametrize("approve", [[], ["external_action"]], ids=["free", "approved"])
@pytest.mark.parametrize("effect", ["once", "idempotent", "pure"])
async def test_arguments_no_journal_takes_go_back_to_the_model(
    hold: Holdfast, effect: str, approve: list[str], written: str
) -> None:
    acted: list[Any] = []

    async def act(x: Any) -> str:  # noqa: ANN401
        """Act."""
        acted.append(x)
        return "acted"

    if written == NAN:
        act.__annotations__["x"] = float

    @tool(risk="read_only")
    async def beside() -> str:
        """Look."""
        return "seen"

    agent, model = register(
        hold,
        [[call("beside"), ScriptedCall("act", written)], "done"],
        tools=[tool(effect=effect)(act), beside],
        approve=approve,
    )
    handle = await finished(hold, agent)
    assert await hold.approvals(handle) == []
    assert await hold.store.effects(task_id=handle.id) == []
    assert acted == []
    seen, wrong = tool_results(model)
    assert seen == "seen"
    assert "BadArguments: the arguments of act are wrong" in wrong


async def test_a_large_answer_of_a_sub_agent_is_kept_as_an_artifact(hold: Holdfast) -> None:
    helper = Agent("helper", model=ScriptedModel(["R" * 200_000]), description="Helps.", builtins=False)
    agent, model = register(hold, [call("helper", request="it"), "done"], tools=[helper])
    handle = await finished(hold, agent)
    [artifact] = (await hold.state(handle)).artifacts
    [said] = tool_results(model)
    assert len(said) < 20_000
    assert artifact.artifact_id in said
    assert "R" * 200_000 in await hold.artifacts.read_text(artifact.artifact_id)


async def test_a_plan_has_at_most_fifty_steps(hold: Holdfast) -> None:
    fifty = [f"step {number}" for number in range(50)]
    agent, model = register(hold, [call("update_plan", plan=[*fifty, "more"]), call("update_plan", plan=fifty), "done"])
    handle = await finished(hold, agent)
    assert "up to 50 steps" in tool_results(model)[0]
    assert (await hold.state(handle)).plan == tuple(fifty)


@pytest.mark.parametrize("written", ['{"x": NaN}', '{"x": {"y": [Infinity]}}'])
def test_what_is_not_a_json_number_does_not_become_nothing(written: str) -> None:
    @tool(risk="read_only")
    def look(x: Any) -> str:  # noqa: ANN401 - anything that the model sends
        """Look."""
        return str(x)

    with pytest.raises(BadArguments, match="is not a JSON number"):
        look.read(written)
