"""An agent as a tool of another: a child task, whose failure the caller gets and which stops with its caller."""

import asyncio

import pytest

from holdfast import Agent, Budget, Handle, Holdfast, Meter, ScriptedModel, Task, TaskCancelled, TaskFilter, TaskState
from holdfast import tool as make_tool
from holdfast.agent.scripted import Line, ScriptedCall, call
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import PATIENCE, finished, look, register, shown, tool_results
from tests.engine.support import until


def helper(replies: list[Line], name: str = "helper", **options: object) -> Agent:
    model = ScriptedModel(replies)
    return Agent(name, model=model, description="Helps.", **options)  # type: ignore[arg-type]


async def children_of(hold: Holdfast, handle: Handle[str]) -> list[Task]:
    page = await hold.store.find(TaskFilter(parent_id=handle.id))
    return sorted(page.items, key=lambda task: task.id)


async def test_an_agent_among_the_tools_does_a_piece_of_work(either: Holdfast) -> None:
    sub = helper([call("look", place="there"), "found it"], tools=[look])
    agent, model = register(either, [call("helper", request="Find it."), "done"], tools=[sub])
    handle = await finished(either, agent)
    assert tool_results(model) == ["found it"]
    [spec] = [spec for spec in model.requests[0].tools if spec.name == "helper"]
    assert spec.description == "Helps."
    assert list(spec.parameters["properties"]) == ["request"]
    [child] = await children_of(either, handle)
    assert (child.name, child.state, child.user_input) == ("helper", TaskState.COMPLETED, ["Find it."])
    assert isinstance(sub.model, ScriptedModel)
    assert shown(sub.model)[0] == ("user", "Find it.")  # and nothing of the parent's conversation
    steps = [step.key for step in await either.store.steps(handle.id) if step.kind == "tool"]
    assert steps == ["helper:1.0"]


async def test_name_and_description_can_be_those_of_the_tool(hold: Holdfast) -> None:
    sub = helper(["found it"])
    tools = [sub.as_tool(name="ask", description="Ask it."), sub.as_tool(name="order", description="Order it.")]
    agent, model = register(hold, [[call("ask", request="a"), call("order", request="b")], "done"], tools=tools)
    handle = await finished(hold, agent)
    assert tool_results(model) == ["found it", "found it"]
    assert [child.name for child in await children_of(hold, handle)] == ["helper", "helper"]
    descriptions = {spec.name: spec.description for spec in model.requests[0].tools}
    assert (descriptions["ask"], descriptions["order"]) == ("Ask it.", "Order it.")


async def test_two_work_at_the_same_time_beside_a_tool(hold: Holdfast) -> None:
    here = asyncio.Barrier(3)

    @make_tool(risk="read_only")
    async def meet(name: str) -> str:
        """Wait for the others."""
        async with asyncio.timeout(PATIENCE):
            await here.wait()
        return name

    def sub(name: str) -> Agent:
        return helper([call("meet", name=name), f"{name} met them"], name, tools=[meet])

    calls = [call("one", request="go"), call("two", request="go"), call("meet", name="boss")]
    agent, model = register(hold, [calls, "done"], tools=[sub("one"), sub("two"), meet])
    await finished(hold, agent)
    assert tool_results(model) == ["one met them", "two met them", "boss"]


async def test_the_parents_model_learns_of_a_failed_child(hold: Holdfast) -> None:
    sub = helper([""], max_senseless_answers=0)
    agent, model = register(hold, [call("helper", request="x"), "I did it myself."], tools=[sub])
    handle = await finished(hold, agent)
    assert await handle.result() == "I did it myself."
    [error] = tool_results(model)
    assert error.startswith("Error: ToolError: helper did not do it: ")
    assert "max_senseless_answers" in error


@pytest.mark.parametrize("arguments", ["{}", '{"request": 3}', '{"request": "a", "more": 1}', "no json"])
async def test_a_child_is_not_begun_with_wrong_arguments(hold: Holdfast, arguments: str) -> None:
    agent, model = register(hold, [ScriptedCall("helper", arguments), "done"], tools=[helper(["never"])])
    handle = await finished(hold, agent)
    assert tool_results(model)[0].startswith("Error: BadArguments: ")
    assert await children_of(hold, handle) == []


@pytest.mark.parametrize("request_", ["", "nul \0", "ünï 🙂"], ids=ascii)
async def test_a_child_may_be_asked_anything(hold: Holdfast, request_: str) -> None:
    agent, model = register(hold, [call("helper", request=request_), "done"], tools=[helper(["found it"])])
    await finished(hold, agent)
    assert tool_results(model) == ["found it"]


async def test_the_parent_holds_no_worker_while_it_waits(hold: Holdfast) -> None:
    sub = helper([call("ask_question", question="Who?"), "found it"])
    agent, model = register(hold, [call("helper", request="x"), "done"], tools=[sub])
    handle = await hold.submit(agent, "go")
    async with hold.worker(concurrency=1):

        async def both_wait() -> bool:
            tasks = [await handle.task(), *await children_of(hold, handle)]
            return len(tasks) == 2 and all(task.state is TaskState.WAITING for task in tasks)

        await until(both_wait, patience=PATIENCE)
        [question] = await hold.approvals()
        await hold.answer(question.id, "me", by="ann")
        await handle.result(timeout=PATIENCE)
    assert tool_results(model) == ["found it"]


async def test_a_cancelled_parent_takes_its_children_along(hold: Holdfast) -> None:
    inner = helper([call("ask_question", question="Who?"), "never"], "inner")
    outer = helper([call("inner", request="y"), "never"], "outer", tools=[inner])
    agent, _ = register(hold, [call("outer", request="x"), "never"], tools=[outer])
    handle = await hold.submit(agent, "go")
    async with hold.worker():

        async def is_asked() -> bool:
            return bool(await hold.approvals())

        await until(is_asked, patience=PATIENCE)
        await hold.cancel(handle)
        with pytest.raises(TaskCancelled):
            await handle.result(timeout=PATIENCE)

        async def all_cancelled() -> bool:
            page = await hold.store.find(limit=10)
            return len(page.items) == 3 and all(task.state is TaskState.CANCELLED for task in page.items)

        await until(all_cancelled, patience=PATIENCE)
    assert await hold.approvals() == []


async def test_the_parents_model_learns_of_a_cancelled_child(hold: Holdfast) -> None:
    sub = helper([call("ask_question", question="Who?"), "never"])
    agent, model = register(hold, [call("helper", request="x"), "done"], tools=[sub])
    handle = await hold.submit(agent, "go")
    async with hold.worker():

        async def is_asked() -> bool:
            return bool(await hold.approvals())

        await until(is_asked, patience=PATIENCE)
        [child] = await children_of(hold, handle)
        await hold.cancel(child.id, "not needed")
        assert await handle.result(timeout=PATIENCE) == "done"
    assert tool_results(model)[0].startswith("Error: ToolError: helper did not do it: ")


async def test_three_deep_whatever_crashes(app: Holdfast) -> None:
    inner = helper([call("look", place="deep"), "inner done"], "inner", tools=[look])
    outer = helper([[call("inner", request="a"), call("look")], "outer done"], "outer", tools=[inner, look])
    agent, model = register(
        app, [[call("outer", request="a"), call("inner", request="b")], "done"], tools=[outer, inner]
    )

    async def scenario(box: Sandbox) -> tuple[str, list[str], list[str]]:
        handle = await box.hold.submit(agent, "go")
        result = await handle.result(timeout=3600)
        page = await box.hold.store.find(limit=100)
        return result, tool_results(model), sorted(task.name for task in page.items)

    survived = await crash_everywhere(app, scenario)
    assert survived.result == ("done", ["outer done", "inner done"], ["agent", "inner", "inner", "outer"])


# Registering


async def test_companions_are_registered_with_their_parent(hold: Holdfast) -> None:
    inner = helper(["x"], "inner")
    outer = helper(["x"], "outer", tools=[inner])
    register(hold, ["x"], tools=[outer])
    assert hold.definitions.names == ["agent", "inner", "outer"]


async def test_one_sub_agent_can_serve_two_parents(hold: Holdfast) -> None:
    sub = helper(["found it"])
    first, model_1 = register(hold, [call("helper", request="x"), "one"], name="first", tools=[sub])
    second, model_2 = register(hold, [call("helper", request="y"), "two"], name="second", tools=[sub.as_tool()])
    await finished(hold, first)
    await finished(hold, second)
    assert tool_results(model_1) == tool_results(model_2) == ["found it"]


async def test_a_sub_agent_can_be_registered_by_itself_first(hold: Holdfast) -> None:
    sub = helper(["found it"])
    alone = hold.register(sub)
    agent, _ = register(hold, [call("helper", request="x"), "done"], tools=[sub])
    assert await (await finished(hold, alone)).result() == "found it"
    assert await (await finished(hold, agent)).result() == "done"


# Its share of the budget


async def test_a_child_gets_its_share_of_what_is_left(hold: Holdfast) -> None:
    sub = helper([call("look"), "found it"], tools=[look], budget=Budget(max_llm_tokens=20_000))
    agent, _ = register(
        hold,
        [call("look"), call("helper", request="x"), "done"],
        tools=[sub.as_tool(share=0.5), look],
        budget=Budget(max_steps=24, max_llm_tokens=100_000),
    )
    handle = await finished(hold, agent)
    [child] = await children_of(hold, handle)
    ledger = await hold.budget(child.id)
    assert ledger.lines[Meter.LLM_TOKENS].limit == 20_000  # its own is tighter
    assert ledger.lines[Meter.STEPS].limit == 10  # of the 20 left, with the call itself
    assert ledger.lines[Meter.STEPS].spent == 3
    assert (await hold.budget(handle)).lines[Meter.STEPS].spent == 5 + 3
