"""What a server says about its tools makes us more careful, and never less."""

from __future__ import annotations

import itertools

import pytest

from holdfast import EffectClass, Holdfast, InvalidValue, RiskLevel
from holdfast.agent.scripted import Line, call
from holdfast.mcp import Declared, tools
from holdfast.mcp.client.declarations import ToolHints, tightened
from tests.agent.support import asked, register
from tests.mcp.client.support import PATIENCE, World

READ, LOCAL, FAR = RiskLevel
PURE, IDEMPOTENT, ONCE = EffectClass

TABLE = [
    # No hint, or none stricter than what was declared.
    (READ, PURE, ToolHints(), READ, PURE),
    (READ, PURE, ToolHints(read_only=True), READ, PURE),
    (READ, PURE, ToolHints(read_only=True, destructive=False, idempotent=False, open_world=True), READ, PURE),
    (READ, PURE, ToolHints(open_world=True), READ, PURE),
    (READ, PURE, ToolHints(idempotent=True), READ, PURE),
    (LOCAL, IDEMPOTENT, ToolHints(read_only=False, idempotent=True), LOCAL, IDEMPOTENT),
    # It changes something.
    (READ, PURE, ToolHints(read_only=False), LOCAL, ONCE),
    (READ, PURE, ToolHints(read_only=False, idempotent=True), LOCAL, IDEMPOTENT),
    (READ, PURE, ToolHints(read_only=False, open_world=True), FAR, ONCE),
    (READ, PURE, ToolHints(read_only=False, open_world=False), LOCAL, ONCE),
    (READ, PURE, ToolHints(destructive=True), FAR, ONCE),
    (READ, PURE, ToolHints(destructive=True, idempotent=True), FAR, IDEMPOTENT),
    (READ, PURE, ToolHints(read_only=True, destructive=True), FAR, ONCE),
    (READ, PURE, ToolHints(idempotent=False), LOCAL, ONCE),
    (LOCAL, IDEMPOTENT, ToolHints(read_only=False), LOCAL, ONCE),
    (LOCAL, IDEMPOTENT, ToolHints(idempotent=False), LOCAL, ONCE),
    (LOCAL, ONCE, ToolHints(destructive=True, idempotent=True), FAR, ONCE),
    # It claims to be harmless.
    (FAR, ONCE, ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False), FAR, ONCE),
    (LOCAL, ONCE, ToolHints(read_only=True), LOCAL, ONCE),
]


@pytest.mark.parametrize(("risk", "effect", "hints", "wanted_risk", "wanted_effect"), TABLE)
def test_the_table(
    risk: RiskLevel, effect: EffectClass, hints: ToolHints, wanted_risk: RiskLevel, wanted_effect: EffectClass
) -> None:
    assert tightened(risk, effect, hints) == (wanted_risk, wanted_effect)


def test_nothing_a_server_can_say_loosens_anything() -> None:
    order = list(EffectClass)
    for said in itertools.product((None, True, False), repeat=4):
        hints = ToolHints(read_only=said[0], destructive=said[1], idempotent=said[2], open_world=said[3])
        for risk, effect in itertools.product(RiskLevel, EffectClass):
            new_risk, new_effect = tightened(risk, effect, hints)
            assert new_risk >= risk
            assert order.index(new_effect) >= order.index(effect)


async def test_a_real_server_is_believed_only_when_it_warns(world: World) -> None:
    harmless = Declared(risk="read_only")
    source = tools(world.command, declare={"wipe": harmless, "search": harmless})
    found = {tool.name: tool for tool in await source.listed()}
    assert (found["wipe"].risk, found["wipe"].effect) == (FAR, ONCE)
    assert (found["search"].risk, found["search"].effect) == (READ, PURE)
    assert (found["innocent"].risk, found["innocent"].effect) == (FAR, ONCE)
    assert found["innocent"].retry.max_attempts == 1


async def test_an_undeclared_tool_needs_approval(hold: Holdfast, world: World) -> None:
    """Whatever it says about itself."""
    source = tools(world.command, declare={"search": Declared(risk="read_only")})
    script: list[Line] = [call("search", query="x"), call("innocent"), "done"]
    agent, _ = register(hold, script, tools=[source], approve=["external_action"])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        approval = await asked(hold, handle)
        assert approval.step_key == "innocent:2.0"
        assert world.called == ["search"]
        await hold.approve(approval.id, by="ann")
        await handle.result(timeout=PATIENCE)
    assert world.called == ["search", "innocent"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"risk": "harmless"}, "risk is 'harmless'; choose one of read_only, write_local, external_action"),
        ({"effect": "twice"}, "effect is 'twice'; choose one of pure, idempotent, once"),
        ({"errors": "ignore"}, "errors is 'ignore'; choose one of answer, absent, doubt"),
    ],
)
def test_words_that_mean_nothing_are_refused(said: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        Declared(**said)  # type: ignore[arg-type]
