"""Each limit stops the agent before it does what goes beyond it, and the books are exact when it has."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from holdfast import Budget, Holdfast, Meter, Price, Request, Retry, Usage, tool
from holdfast.agent.prompt import estimate_prompt
from holdfast.agent.scripted import Answer, Line, call
from holdfast.testing import sandbox
from tests.agent.budget.support import books, completed, failed, line, look, register, spent_ms, why


async def for_ever(request: Request) -> Answer:
    """It never stops by itself, and never asks for the same thing twice."""
    return call("look", place=f"place {request.turn}")


# Steps


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7])
async def test_steps_stop_before_the_one_that_is_too_many(hold: Holdfast, most: int) -> None:
    seen: list[str] = []

    @tool(risk="read_only")
    async def look(place: str) -> str:
        """Look somewhere."""
        seen.append(place)
        return "nothing"

    agent, model = register(hold, for_ever, tools=[look], budget=Budget(max_steps=most))
    task = await failed(hold, agent)
    assert "BudgetExceeded" in str(await why(task))
    # Answers and calls take turns; an odd budget ends with an answer whose call is not made.
    assert (len(model.requests), len(seen)) == (most - most // 2, most // 2)
    assert (await books(hold, task))["steps"] == (most, most, 0)


async def test_the_last_step_is_usable(either: Holdfast) -> None:
    agent, _ = register(either, [call("look"), "done"], tools=[look], budget=Budget(max_steps=3))
    task = await completed(either, agent)
    assert (await books(either, task))["steps"] == (3, 3, 0)


async def test_calls_made_at_once_are_all_counted_before_any_is_made(either: Holdfast) -> None:
    seen: list[str] = []

    @tool(risk="read_only")
    async def look(place: str) -> str:
        """Look somewhere."""
        seen.append(place)
        return "nothing"

    three = [call("look", place=str(number)) for number in range(3)]
    agent, _ = register(either, [three, "done"], tools=[look], budget=Budget(max_steps=3))
    task = await failed(either, agent)
    assert seen == []
    assert (await books(either, task))["steps"] == (3, 1, 0)
    assert "3 asked, 2 left of 3 (1 spent, 0 reserved)" in str(await why(task))


# Tokens


async def test_tokens_stop_before_a_call_that_may_take_too_many(either: Holdfast) -> None:
    usage = Usage(input_tokens=60, output_tokens=20)
    agent, model = register(either, for_ever, tools=[look], usage=usage, budget=Budget(max_llm_tokens=300))
    task = await failed(either, agent)
    spent = (await line(either, task, "llm_tokens")).spent
    assert spent == 80 * len(model.requests)
    assert len(model.requests) in (2, 3)
    last = model.requests[-1]
    asked = estimate_prompt(last.messages, last.tools)
    # Before every call there was room for its prompt, as far as it could be estimated, and for a short answer.
    assert all(request.max_output_tokens is not None and request.max_output_tokens >= 16 for request in model.requests)
    assert 80 * (len(model.requests) - 1) + asked + (last.max_output_tokens or 0) <= 300
    # There would not have been room for the call that was not made.
    assert spent + asked + 16 > 300


async def test_an_answer_may_be_as_long_as_the_budget_has_room_for(hold: Holdfast) -> None:
    agent, model = register(hold, ["hi"], budget=Budget(max_llm_tokens=500), max_output_tokens=10_000)
    await completed(hold, agent)
    [request] = model.requests
    assert request.max_output_tokens == 500 - estimate_prompt(request.messages, request.tools)


async def test_without_a_limit_an_answer_is_not_limited(hold: Holdfast) -> None:
    agent, model = register(hold, ["hi"], budget=Budget(max_steps=5))
    await completed(hold, agent)
    assert model.requests[0].max_output_tokens is None


async def test_an_agent_of_few_words_can_have_a_budget(hold: Holdfast) -> None:
    agent, model = register(hold, ["hi"], budget=Budget(max_llm_tokens=100_000), max_output_tokens=10)
    await completed(hold, agent)
    assert model.requests[0].max_output_tokens == 10


# Money


async def test_cost_is_exact_and_stops_before_what_cannot_be_paid(either: Holdfast) -> None:
    each = Price(Decimal("2.5"), Decimal(10))
    usage = Usage(input_tokens=41, output_tokens=7)  # 172.5 millionths, rounded up for each call
    agent, model = register(
        either,
        for_ever,
        tools=[look],
        usage=usage,
        prices={"scripted": each},
        budget=Budget(max_cost=Decimal("0.001500")),
    )
    task = await failed(either, agent)
    assert (await line(either, task, "cost_micros")).spent == 173 * len(model.requests)
    assert 173 * len(model.requests) <= 1_500
    assert len(model.requests) >= 3
    last = model.requests[-1]
    prompt = estimate_prompt(last.messages, last.tools)
    most = Usage(input_tokens=prompt, output_tokens=last.max_output_tokens or 0)
    assert 173 * (len(model.requests) - 1) + each.micros(most) <= 1_500
    assert "cost_micros" in str(await why(task))
    state = await either.state(task)
    assert state.budget.max_cost == Decimal("0.0015")


# Time


async def test_time_stops_a_model_that_thinks_for_too_long(app: Holdfast) -> None:
    async def think(_: Request) -> Answer:
        await asyncio.sleep(3_600)
        return "too late"

    agent, model = register(app, think, budget=Budget(max_wall_time_ms=5_000))
    async with sandbox(app) as box:
        task = await app.submit(agent, "go")
        assert "wall_time_ms" in str(await why(task))
        assert box.elapsed.total_seconds() < 3_600
        assert await spent_ms(app, task) >= 5_000
    assert len(model.requests) == 1


async def test_time_stops_a_tool_and_what_would_be_begun_after_it(app: Holdfast) -> None:
    begun: list[str] = []
    cut: list[str] = []

    @tool(risk="read_only", retry=Retry(max_attempts=1))
    async def dig(place: str) -> str:
        """Dig somewhere, for three seconds."""
        begun.append(place)
        box.clock.advance(3)
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            cut.append(place)
            raise
        return "nothing"

    async def dig_on(request: Request) -> Answer:
        return call("dig", place=str(request.turn))

    agent, model = register(app, dig_on, tools=[dig], budget=Budget(max_wall_time_ms=10_000))
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            assert "wall_time_ms" in str(await why(task))
            assert await spent_ms(app, task) == 12_000
    assert begun == ["0", "1", "2", "3"]
    assert cut == ["3"]  # it had one second left
    assert len(model.requests) == 4


async def test_an_answer_that_came_at_the_last_moment_is_kept_and_its_calls_are_not_made(app: Holdfast) -> None:
    seen: list[str] = []

    async def think(_: Request) -> Answer:
        box.clock.advance(5)
        return call("look", place="there")

    @tool(risk="read_only", retry=Retry(max_attempts=1))
    async def look(place: str) -> str:
        """Look somewhere."""
        seen.append(place)
        return "nothing"

    agent, model = register(app, [think, "done"], tools=[look], budget=Budget(max_wall_time_ms=5_000))
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            assert "wall_time_ms" in str(await why(task))
            assert seen == []
            await app.extend_budget(task, Budget(max_wall_time_ms=60_000), by="ann")
            await app.resume(task)
            assert await task.result() == "done"
    assert seen == ["there"]
    assert len(model.requests) == 2


async def test_the_account_shows_the_time_once_whatever_waits_to_be_sent(app: Holdfast) -> None:
    @tool(risk="read_only")
    async def dig(place: str) -> str:
        """Dig somewhere."""
        box.clock.advance(0.5)  # not so long that the step would flush
        return f"nothing {place}"

    script = [call("dig", place=str(number)) for number in range(6)] + ["done"]
    agent, _ = register(
        app, script, tools=[dig], budget=Budget(max_wall_time_ms=3_600_000), checkpoint="on_state_change"
    )
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            await task.result()
            assert (await line(app, task, "wall_time_ms")).spent == 3_000
            assert await spent_ms(app, task) == 3_000


# What is shown


async def test_artifact_bytes_limit_what_the_model_is_shown_of_its_state(hold: Holdfast) -> None:
    facts = [call("record_fact", key=f"fact {number}", value="x" * 100) for number in range(10)]

    seen: dict[int | None, int] = {}
    for most in (None, 600, 0):
        agent, model = register(
            hold,
            [*facts, "done"],
            name=f"agent {most}",
            builtins=True,
            budget=Budget(max_artifact_bytes_in_context=most),
        )
        task = await completed(hold, agent)
        assert len((await hold.state(task)).known_facts) == 10  # nothing is forgotten
        prompt = model.requests[-1].messages
        shown = [message.content for message in prompt if message.role == "system"]
        seen[most] = sum(text.count("x" * 100) for text in shown)
        if most is not None:
            assert sum(len(part) for text in shown for part in text.splitlines() if "x" * 100 in part) <= most
    assert seen[None] == 10
    assert 0 < seen[600] < 10
    assert seen[0] == 0


# Books


async def test_exact_books_after_a_run(either: Holdfast) -> None:
    def usage(request: Request, _: object) -> Usage:
        return Usage(input_tokens=100 + (request.turn or 0), output_tokens=3)

    script: list[Line] = [[call("look", place="a"), call("look", place="b")], call("look", place="c"), "done"]
    agent, _ = register(
        either,
        script,
        tools=[look],
        usage=usage,
        prices={"scripted": Price(1, 100)},
        budget=Budget(max_steps=50, max_llm_tokens=50_000, max_cost=5),
    )
    task = await completed(either, agent)
    assert await books(either, task) == {
        "steps": (50, 6, 0),
        "llm_tokens": (50_000, 100 + 101 + 102 + 9, 0),
        "cost_micros": (5_000_000, 100 + 101 + 102 + 900, 0),
    }
    assert (await either.budget(task)).lines[Meter.STEPS].spent == 6


async def test_books_are_kept_without_a_limit_too(hold: Holdfast) -> None:
    agent, _ = register(hold, [call("look"), "done"], tools=[look], usage=Usage(input_tokens=5, output_tokens=2))
    task = await completed(hold, agent)
    assert await books(hold, task) == {"steps": (None, 3, 0), "llm_tokens": (None, 14, 0)}


async def test_an_endpoint_that_does_not_say_what_it_took_is_estimated(hold: Holdfast) -> None:
    agent, model = register(hold, ["x" * 400], usage=None, budget=Budget(max_llm_tokens=10_000))
    task = await completed(hold, agent)
    [request] = model.requests
    prompt = estimate_prompt(request.messages, request.tools)
    spent = (await line(hold, task, "llm_tokens")).spent
    assert prompt + 50 <= spent <= prompt + 400
