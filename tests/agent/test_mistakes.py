"""Mistakes in describing agents and tools are refused where they are made, with advice on what to do instead."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Agent, Budget, DuplicateName, Holdfast, InvalidValue, Judge, ScriptedModel, tool
from holdfast import Tool as ToolOf
from tests.agent.support import look

MODEL = ScriptedModel(["done"])


def agent(name: Any = "agent", **options: Any) -> Agent:  # noqa: ANN401
    return Agent(name, **{"model": MODEL, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "agent name is empty"),
        ({"name": 3}, "agent name is 3; it has to be a string"),
        ({"model": 3}, r"model is 3; give a model's name, or an object with name and complete\(...\)"),
        ({"model": None}, "model is None"),
        ({"approve": "external_action"}, r'name the levels in a list: approve=\["external_action"\]'),
        ({"approve": ["danger"]}, "choose from read_only, write_local, external_action"),
        ({"deciders": "ann"}, r'deciders is \'ann\'; name them in a list: deciders=\["ann"\]'),
        ({"deciders": [""]}, "deciders"),
        ({"approval_expires": -1}, "approval_expires"),
        ({"budget": 3}, r"budget is 3; write budget=Budget\(max_steps=20\)"),
        ({"instructions": None}, "instructions is None; it has to be a text"),
        ({"description": 3}, "description is 3; it has to be a text"),
        ({"checkpoint": "sometimes"}, "sometimes"),
        ({"verify": "judge"}, r"verify is 'judge'; give a function .* Judge\(...\), Human\(...\) or \"human\""),
        ({"verify": 3}, "verify is 3"),
        ({"observe": 3}, "observe is 3; give a function"),
        ({"builtins": ["dance"]}, r"builtins is \['dance'\]; choose from update_plan, "),
        ({"builtins": "recall"}, "builtins is 'recall'"),
        ({"tools": [3]}, "3 is not a function"),
        ({"tools": [lambda: None]}, "a tool cannot be called '<lambda>'"),
        ({"tools": look}, r"tools is <tool 'look', read_only, pure>; name them in a list: tools=\["),
        ({"queue": ""}, "queue"),
        ({"priority": "high"}, "priority is 'high'"),
        ({"retry": 3}, r"write retry=Retry\(max_attempts=3\)"),
        ({"model_retry": 3}, r"write retry=Retry\(max_attempts=3\)"),
        ({"deadline": -1}, "deadline"),
        ({"model_timeout": 0}, "model_timeout"),
        ({"max_output_tokens": 0}, "max_output_tokens is 0; the lowest allowed is 1"),
        ({"max_identical_calls": 0}, "max_identical_calls is 0"),
        ({"max_senseless_answers": -1}, "max_senseless_answers is -1"),
        ({"inline_bytes": 10}, "inline_bytes is 10"),
        ({"max_output_tokens": 1.5}, "it has to be a whole number"),
        ({"max_context_tokens": 0}, "max_context_tokens is 0"),
        ({"max_context_bytes": "many"}, "max_context_bytes is 'many'"),
        ({"budget": Budget(max_cost=1)}, r'the price of scripted is not known; pass prices=\{"scripted": Price\('),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_an_agent_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        agent(**options)


def test_two_tools_of_one_name() -> None:
    with pytest.raises(DuplicateName, match="two tools are called 'look'; give one of them another name="):
        agent(tools=[look, look])
    with pytest.raises(DuplicateName, match="two tools are called 'recall'"):
        agent(tools=[tool(name="recall", risk="read_only")(look.function)])
    assert "recall" in agent(tools=[tool(name="recall", risk="read_only")(look.function)], builtins=False).tools


def test_annotations_that_cannot_be_found() -> None:
    def act(_place: "NotThere") -> str:  # type: ignore[name-defined]  # noqa: F821 - the test is about that
        """Act."""
        return ""

    with pytest.raises(InvalidValue, match="the annotations of tool 'act' name something that cannot be found"):
        made(act)


def test_an_agent_may_be_registered_after_the_one_that_brought_it_along() -> None:
    hold, helper = Holdfast("memory://"), agent("helper", description="Helps.")
    hold.register(agent(tools=[helper]))
    hold.register(helper)
    assert "helper" in hold.definitions.names


def test_two_agents_of_one_name() -> None:
    hold = Holdfast("memory://")
    hold.register(agent())
    with pytest.raises(DuplicateName, match="a task named 'agent' is defined already"):
        hold.register(agent())
    with pytest.raises(DuplicateName, match="a task named 'agent' is defined already"):
        hold.register(agent("other", tools=[agent(description="Another one.")]))


def test_sub_agents_need_a_description_and_a_share() -> None:
    with pytest.raises(InvalidValue, match="sub-agent 'agent' needs a description"):
        agent("parent", tools=[agent()])
    assert agent("parent", tools=[agent(instructions="You help.")]).tools["agent"].description == "You help."
    for share in (0, -1, 1.5, True, "half", float("nan")):
        with pytest.raises(InvalidValue, match="the share of sub-agent 'agent' is"):
            agent(description="Helps.").as_tool(share=share)  # type: ignore[arg-type]


def test_a_judge_needs_a_model_it_can_ask() -> None:
    with pytest.raises(InvalidValue, match="the judge's model is 3"):
        agent(verify=Judge(model=3))  # type: ignore[arg-type]


# Tools


def made(function: Callable[..., Any], **options: Any) -> ToolOf:  # noqa: ANN401
    function.__doc__ = function.__doc__ or "Act."
    return tool(**options)(function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"risk": "danger"}, "risk of tool 'act' is 'danger'; choose one of read_only, write_local, external_action"),
        ({"effect": "twice"}, "effect of step 'act' is 'twice'; choose one of"),
        ({"retry": 3}, r"write retry=Retry\(max_attempts=3\)"),
        ({"timeout": -1}, "the timeout of tool 'act'"),
        ({"timeout": "soon"}, "the timeout of tool 'act'"),
        ({"reconcile": 3}, "reconcile of step 'act' is 3"),
        ({"compensate": 3}, "compensate of step 'act' is 3"),
        ({"absent_on": (3,)}, "absent_on holds 3"),
        ({"settle": -1}, "the settle time of step 'act'"),
        ({"effect": "pure", "repeat": True}, "are for effect='once'"),
        ({"name": "a\nb"}, "use up to 64 letters, digits, _ and -"),
        ({"name": "look it up"}, "a tool cannot be called 'look it up'"),
        ({"name": "x" * 300}, "a tool cannot be called 'x{80}'; use up to 64"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_tool_cannot_be(options: dict[str, Any], message: str) -> None:
    def act() -> None: ...

    with pytest.raises(InvalidValue, match=message):
        made(act, **options)


def test_what_cannot_be_a_tool() -> None:
    def many(*paths: str) -> None: ...
    def named(**paths: str) -> None: ...
    def first(path: str, /) -> None: ...
    def strange(path: Callable[[], None]) -> None: ...
    def opaque(thing: Opaque) -> None: ...
    def optional(thing: Opaque | None = None) -> None: ...
    def unlike(limit: int = "all") -> None: ...  # type: ignore[assignment]
    def yields() -> Iterator[int]:
        yield 1

    for function, message in (
        (many, r"tool 'many' takes \*paths: str; a model needs each parameter by name"),
        (named, r"tool 'named' takes \*\*paths"),
        (first, "tool 'first' takes path: str; a model needs each parameter by name"),
        (strange, "tool 'strange' has a parameter without a possible JSON Schema"),
        (opaque, "tool 'opaque' has a parameter without a possible JSON Schema"),
        (optional, "tool 'optional' has a parameter without a possible JSON Schema"),
        (
            unlike,
            "tool 'unlike' takes limit: int = 'all', and the default does not fit its type",
        ),
        (yields, "yields yields; a tool returns its result"),
    ):
        with pytest.raises(InvalidValue, match=message):
            made(function)
    with pytest.raises(InvalidValue, match="3 is not a function; write @tool"):
        tool(3)  # type: ignore[call-overload]


def test_a_tool_has_to_be_described() -> None:
    def act() -> None: ...

    with pytest.raises(InvalidValue, match="tool 'act' has no docstring; a model has to know what the tool does"):
        tool(act)
    assert tool(description="Act.")(act).description == "Act."


class Opaque:
    pass
