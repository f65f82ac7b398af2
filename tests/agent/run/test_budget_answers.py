"""The question about a spent budget: in which unit it is answered, by whom, and that it is asked again if need be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    Agent,
    Budget,
    Conflict,
    Holdfast,
    InvalidValue,
    Meter,
    Price,
    Request,
    ScriptedModel,
    Usage,
    tool,
)
from holdfast.agent.scripted import Answer, ScriptedCall, call
from holdfast.model.queries import TaskFilter
from holdfast.testing import sandbox
from tests.agent.budget.support import PATIENCE, asked, line, look, register
from tests.agent.support import tool_results
from tests.engine.support import settle, until

DEAR = {"scripted": Price(input=1.0, output=1.0)}


async def test_an_answer_about_money_is_an_amount_of_money(hold: Holdfast) -> None:
    agent, _ = register(
        hold,
        [call("look"), "done"],
        tools=[look],
        usage=Usage(input_tokens=1_000_000, output_tokens=10),
        prices=DEAR,
        budget=Budget(max_cost=1.0, on_exhausted="ask"),
    )
    task = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, task)
        await hold.answer(question.id, 2.5, by="ann")
        assert await task.result(timeout=PATIENCE) == "done"
    assert (await line(hold, task, Meter.COST_MICROS)).limit == 2_500_000


async def test_an_answer_about_time_is_in_seconds() -> None:
    app = Holdfast("memory://")

    async def think(_: Request) -> Answer:
        box.clock.advance(4)
        return call("look")

    agent, _ = register(app, [think, "done"], tools=[look], budget=Budget(max_wall_time_ms=4_000, on_exhausted="ask"))
    async with sandbox(app) as box:
        task = await app.submit(agent, "go")
        question = await asked(app, task)
        with pytest.raises(InvalidValue, match="not more than"):
            await app.answer(question.id, 1, by="ann")
        await app.answer(question.id, 10**6, by="ann")
        assert await task.result() == "done"
        assert (await line(app, task, Meter.WALL_TIME_MS)).limit == 10**9


async def test_only_who_decides_for_the_agent_grants_it_more(hold: Holdfast) -> None:
    agent, _ = register(
        hold,
        [call("look"), "done"],
        tools=[look],
        deciders=["ann"],
        budget=Budget(max_steps=2, on_exhausted="ask"),
    )
    task = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, task)
        assert tuple(question.deciders) == ("ann",)
        with pytest.raises((Conflict, InvalidValue), match="ann"):
            await hold.approve(question.id, by="mallory")
        assert (await line(hold, task, Meter.STEPS)).limit == 2
        await hold.approve(question.id, by="ann")
        await task.result(timeout=PATIENCE)
    assert (await line(hold, task, Meter.STEPS)).limit == 4


async def test_a_budget_that_is_lowered_again_is_asked_for_again(hold: Holdfast) -> None:
    under_way, gate = asyncio.Event(), asyncio.Event()

    @tool(risk="read_only")
    async def wait() -> str:
        """Wait."""
        under_way.set()
        await gate.wait()
        return "waited"

    agent, _ = register(
        hold, [call("look"), call("wait"), "done"], tools=[look, wait], budget=Budget(max_steps=2, on_exhausted="ask")
    )
    task = await hold.submit(agent, "go")
    async with hold.worker():
        await hold.approve((await asked(hold, task)).id, by="ann")
        async with asyncio.timeout(PATIENCE):
            await under_way.wait()
        await hold.extend_budget(task, Budget(max_steps=2), by="ann")
        gate.set()
        again = await asked(hold, task, times=2)
        assert (await line(hold, task, Meter.STEPS)).limit == 2
        await hold.answer(again.id, 9, by="ann")
        await task.result(timeout=PATIENCE)
    assert (await line(hold, task, Meter.STEPS)).limit == 9


async def test_a_model_whose_numbers_cannot_be_is_not_believed(hold: Holdfast) -> None:
    """Too little would make the budget endless, too much would spend it at once."""
    prompt, said = "x" * 20_000, "y" * 40_000

    async def spent(usage: Any) -> int:  # noqa: ANN401 - whatever a model says
        agent, _ = register(hold, [said], usage=lambda _request, _reply: usage, name=f"agent{len(seen)}")
        task = await hold.submit(agent, prompt)
        async with hold.worker():
            await task.result(timeout=PATIENCE)
        seen.append((await line(hold, task, Meter.LLM_TOKENS)).spent)
        return seen[-1]

    seen: list[int] = []
    estimated = await spent(None)
    assert 15_000 < estimated < 25_000
    for tokens_in, tokens_out in (
        (0, 0),
        (-50_000, 10_000),
        (5_000, -1),
        (1, 10_000),
        (5_000, 0),
        (5_000, 300),
        (150, 10_000),
        (10**30, 10_000),
        (5_000, 10**9),
        (True, 10_000),
        (5_000, False),
        (5_000.0, 10_000),
        ("5000", 10_000),
        (None, None),
    ):
        wrong = Usage(input_tokens=tokens_in, output_tokens=tokens_out)  # type: ignore[arg-type]
        assert await spent(wrong) == estimated, wrong
    assert await spent({"input_tokens": 5_000}) == estimated
    assert await spent(Usage(input_tokens=200, output_tokens=400)) == 600, "few, but it could be"
    assert await spent(Usage(input_tokens=5_000, output_tokens=1_000_000)) == 1_005_000, "it may think unseen"


async def test_sub_agents_at_once_wait_for_what_the_others_have_set_aside(hold: Holdfast) -> None:
    gate = asyncio.Event()

    async def think(_request: Request) -> str:
        await gate.wait()
        return "found it"

    helping = ScriptedModel(think)
    helper = Agent("helper", model=helping, description="Helps.", builtins=False)
    calls: list[ScriptedCall] = [call("helper", request=str(number)) for number in range(3)]
    agent, model = register(hold, [calls, "done"], tools=[helper], budget=Budget(max_llm_tokens=10_000))
    task = await hold.submit(agent, "go")
    async with hold.worker(concurrency=10):

        async def all_have_begun() -> bool:
            children = await hold.store.find(TaskFilter(parent_id=task.id))
            return sum(child.started_at is not None for child in children.items) == 3 and len(helping.requests) == 2

        await until(all_have_begun, patience=PATIENCE)
        await settle()
        assert len(helping.requests) == 2  # which have set aside all there is
        gate.set()
        assert await task.result(timeout=PATIENCE) == "done"
    assert tool_results(model) == ["found it"] * 3
