"""A spent wall time above other tasks: sub-agents are held to it, and people stop the clock."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Agent, Budget, Handle, Holdfast, Meter, Request, ScriptedModel, TaskFilter, TaskState
from holdfast.agent.scripted import Answer, Line, call
from holdfast.engine.steps.children import CALLER_OUT_OF_TIME
from holdfast.testing import sandbox
from tests.agent.budget.hanging import (
    AT_ONCE,
    HOUR,
    LONG,
    MINUTE,
    Hanging,
    extend,
    failed_in_time,
    last_reason,
    waits,
)
from tests.agent.budget.support import PATIENCE, asked, register, spent_ms
from tests.engine.support import until


async def family(hold: Holdfast, hanging: Hanging, **options: Any) -> tuple[Handle[str], ScriptedModel]:  # noqa: ANN401
    """Begin an agent that has called another one, which no worker claims before the caller's time is spent."""
    model = ScriptedModel([call("hang"), "found"])
    helper = Agent("helper", description="Helps.", model=model, tools=[hanging.tool], builtins=False, queue="later")
    budget = Budget(max_wall_time_ms=1_500, **options)
    boss, _ = register(
        hold, [call("helper", request="x"), "done"], name="boss", tools=[helper.as_tool(share=1.0)], budget=budget
    )
    task = await hold.submit(boss, "go")

    async def is_late() -> bool:
        return await spent_ms(hold, task) > 1_500

    async with hold.worker(queues=["default"]):
        await until(lambda: waits(task), patience=PATIENCE)
    await until(is_late, patience=PATIENCE)
    return task, model


async def test_a_sub_agent_is_held_to_the_clock_of_its_caller(either: Holdfast) -> None:
    hanging = Hanging()
    hanging.now = lambda: None
    task, model = await family(either, hanging)
    async with either.worker(queues=["later", "default"]):
        await failed_in_time(either, task)
    [helper] = (await either.store.find(TaskFilter(name="helper"))).items
    assert (helper.state, await last_reason(either, helper.id)) == (TaskState.FAILED, CALLER_OUT_OF_TIME)
    assert not model.requests, "nothing was begun"


async def test_a_sub_agent_goes_on_when_its_caller_gets_more_time(either: Holdfast) -> None:
    hanging = Hanging(times=0)
    hanging.now = lambda: None
    task, model = await family(either, hanging, on_exhausted="ask")
    async with either.worker(queues=["later", "default"]):
        await extend(either, task)
        assert await task.result(timeout=PATIENCE) == "done"
    assert len(model.requests) == 2


async def test_what_a_caller_is_granted_reaches_those_below(app: Holdfast) -> None:
    """Each had a share of the time of its caller, and has used it up. All go on, twice, where they were."""
    hanging = Hanging(times=2)
    leaf = Agent(
        "leaf",
        description="Works.",
        model=ScriptedModel([call("hang"), "found"]),
        tools=[hanging.tool],
        builtins=False,
    )
    middle = Agent(
        "middle",
        description="Delegates.",
        model=ScriptedModel([call("leaf", request="x"), "passed on"]),
        tools=[leaf],
        builtins=False,
    )
    budget = Budget(max_wall_time_ms=MINUTE, on_exhausted="ask")
    boss, _ = register(app, [call("middle", request="x"), "done"], name="boss", tools=[middle], budget=budget)
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(boss, "go")
        for times, limit in ((1, LONG), (2, 10 * LONG)):
            await asked(app, task, times=times)
            await until(lambda: waits(task), patience=PATIENCE)
            assert len(hanging.began) == times
            await app.extend_budget(task, Budget(max_wall_time_ms=limit), by="ann")
        assert await task.result() == "done"
        assert len(hanging.began) == 3
        assert len((await app.store.find(TaskFilter())).items) == 3


def asking(name: str = "asker") -> Agent:
    model = ScriptedModel([call("ask_question", question="Where?"), "there"])
    return Agent(name, description="Asks.", model=model, builtins=["ask_question"])


async def question(hold: Holdfast) -> str:
    """Wait until a person is asked, and return the id of the question."""
    await until(hold.approvals, patience=PATIENCE)
    return (await hold.approvals())[0].id


async def test_a_person_who_decides_for_a_sub_agent_stops_the_clock(app: Holdfast) -> None:
    budget = Budget(max_wall_time_ms=MINUTE)
    boss, _ = register(app, [call("asker", request="x"), "done"], name="boss", tools=[asking()], budget=budget)
    async with sandbox(app) as box:
        task = await app.submit(boss, "go")
        asked_for = await question(app)
        await until(lambda: waits(task), patience=PATIENCE)
        with box.frozen():
            await box.idle()
            await box.advance(2 * HOUR)
        await app.answer(asked_for, "west", by="ann")
        assert await task.result() == "done"
        assert await spent_ms(app, task) < MINUTE


async def test_a_sub_agent_that_works_beside_a_question_ends_its_caller_in_time(app: Holdfast) -> None:
    """The caller waits for both. It does not wait for the person when its time is spent by the other one."""
    hanging = Hanging()
    works = Agent(
        "works", description="Works.", model=ScriptedModel([call("hang")]), tools=[hanging.tool], builtins=False
    )
    calls = [call("asker", request="x"), call("works", request="x")]
    budget = Budget(max_wall_time_ms=5 * MINUTE)
    boss, _ = register(app, [calls, "done"], name="boss", tools=[asking(), works], budget=budget)
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(boss, "go")
        await failed_in_time(app, task)
        assert await app.approvals() == [], "no answer is needed any more"
        states = {one.name: one.state for one in (await app.store.find(TaskFilter())).items}
        assert states == {"boss": TaskState.FAILED, "works": TaskState.FAILED, "asker": TaskState.CANCELLED}


async def test_a_task_that_is_run_by_name_does_not_lose_time_to_a_person(app: Holdfast) -> None:
    budget = Budget(max_wall_time_ms=MINUTE)
    agent, _ = register(
        app, [call("ask_question", question="Where?"), "done"], builtins=True, budget=budget, queue="mine"
    )
    async with sandbox(app, queues=["other"]) as box:
        task = await app.submit(agent, "go")
        running = asyncio.create_task(app.run(task))
        asked_for = await question(app)
        with box.frozen():
            await box.advance(300)  # it looks once a second
        assert (await task.task()).state is TaskState.RUNNING, "it stays in its process"
        await app.answer(asked_for, "west", by="ann")
        assert await running == "done"
        assert await spent_ms(app, task) < MINUTE


async def test_a_task_that_is_run_by_name_asks_for_more_time(app: Holdfast) -> None:
    hanging = Hanging(times=1)
    budget = Budget(max_wall_time_ms=MINUTE, on_exhausted="ask")
    agent, _ = register(app, [call("hang"), "done"], tools=[hanging.tool], budget=budget, queue="mine")
    async with sandbox(app, queues=["other"]) as box:
        hanging.now = box.clock.now
        task = await app.submit(agent, "go")
        running = asyncio.create_task(app.run(task))
        await asked(app, task)
        with box.frozen():
            await box.advance(300)  # it looks once a second
        await app.extend_budget(task, Budget(max_wall_time_ms=2 * LONG), by="ann")
        assert await running == "done"
        assert len(hanging.began) == 2


async def test_a_fork_has_a_clock_of_its_own(app: Holdfast) -> None:
    hanging = Hanging(times=1)
    agent, _ = register(app, [call("hang"), "done"], tools=[hanging.tool], budget=Budget(max_wall_time_ms=MINUTE))
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(agent, "go")
        await failed_in_time(app, task)
        fork = await app.fork(task)
        assert await fork.result() == "done"
        assert await spent_ms(app, fork) < MINUTE


async def test_a_task_that_waits_for_more_time_has_nothing_set_aside(app: Holdfast) -> None:
    async def think(_: Request) -> Answer:
        if len(model.requests) == 1:
            await asyncio.Event().wait()
        return "done"

    budget = Budget(max_wall_time_ms=MINUTE, max_steps=9, max_llm_tokens=100_000, on_exhausted="ask")
    agent, model = register(app, think, budget=budget, model_timeout=HOUR)
    async with sandbox(app):
        task = await app.submit(agent, "go")
        await asked(app, task)
        await until(lambda: waits(task), patience=PATIENCE)
        assert all(line.reserved == 0 for line in (await app.budget(task)).lines.values())
        await extend(app, task)
        assert await task.result() == "done"
        assert (await app.budget(task)).lines[Meter.STEPS].spent == 1, "the step that was cut off counts once"


async def test_a_sub_agent_gets_its_share_of_time_in_a_new_round_too(app: Holdfast) -> None:
    """It spent its time in the first round without booking it, because it hung."""
    hanging = Hanging(times=1)
    helper = Agent(
        "helper",
        description="Helps.",
        model=ScriptedModel([call("hang"), "found"]),
        tools=[hanging.tool],
        builtins=False,
        budget=Budget(max_wall_time_ms=MINUTE),
    )
    script: list[Line] = [call("helper", request="x"), "first", call("helper", request="x"), "second"]
    boss, _ = register(
        app, script, name="boss", tools=[helper], verify=lambda ctx, _: ctx.task.round == 2 or "again", retry=AT_ONCE
    )
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(boss, "go")
        assert await task.result() == "second"
        [child] = (await app.store.find(TaskFilter(name="helper"))).items
        assert child.state is TaskState.COMPLETED
