"""Chapter 11: where to integrate it, and the example of the lab."""

from dataclasses import replace

from holdfast import (
    Agent,
    Budget,
    Context,
    Holdfast,
    KnownFact,
    Meter,
    Retry,
    ScriptedModel,
    StatePatch,
    StepState,
    Task,
    TaskState,
    filter_relevant_state,
    tool,
)
from holdfast.agent.scripted import call
from tests.agent.support import finished, tool_results
from tests.engine.support import ended
from tests.seeds.chapters import STATE_MANAGEMENT, section


def check_disk() -> str:
    "Check current disk usage."
    return "Disk Usage: 95% (CRITICAL). Large folder: /var/log"


def clean_logs() -> str:
    "Delete old logs to free space."
    return "Logs cleaned. Freed 20GB."


@section(STATE_MANAGEMENT, "Integration Point 1: Agent Loop", ours="`store.save`; `ctx.state`, `ctx.patch`")
async def test_integration_point_1_agent_loop(hold: Holdfast) -> None:
    model = iter(["check_disk", "clean_logs", "Done: 20GB are free."])
    tools = {"check_disk": check_disk, "clean_logs": clean_logs}
    task = await hold.store.save(
        Task(id="task-1", user_input="I'm out of disk space. Fix it.", state=TaskState.RUNNING)
    )
    for _ in range(5):
        answer = next(model)
        if answer not in tools:
            task = await hold.store.save(replace(task, state=TaskState.COMPLETED, result=answer))
            break
        task = await hold.store.save(replace(task, state=TaskState.RUNNING, result=tools[answer]()))
        stored = await hold.store.get("task-1")
        assert stored is not None
        assert stored.result == tools[answer]()
    assert (task.state, task.result) == (TaskState.COMPLETED, "Done: 20GB are free.")
    moves = [(move.from_state, move.to_state) for move in await hold.store.history("task-1")]
    assert moves == [(None, TaskState.RUNNING), (TaskState.RUNNING, TaskState.COMPLETED)]

    @hold.task(budget=Budget(max_steps=2))
    async def by_steps(ctx: Context, goal: str) -> str:
        await ctx.patch(StatePatch(goal=goal))
        for name, function in tools.items():
            await ctx.charge(steps=1)
            found = await ctx.step(name, function)
            await ctx.patch(StatePatch(append_facts=(KnownFact(key=name, value=found, source="tool"),)))
        return filter_relevant_state(ctx.state, None, max_bytes=8_000).render()

    handle = await hold.submit(by_steps, "Fix it.")
    async with hold.worker():
        shown = await ended(handle)
    assert "Freed 20GB" in shown
    assert [fact.key for fact in (await hold.state(handle)).known_facts] == ["check_disk", "clean_logs"]
    assert (await hold.budget(handle)).lines[Meter.STEPS].spent == 2


@section(STATE_MANAGEMENT, "Integration Point 2: Tool Execution", ours="`@tool(retry=Retry(max_attempts=3))`")
async def test_integration_point_2_tool_execution(hold: Holdfast) -> None:
    tries = 0

    @tool(risk="read_only", retry=Retry(max_attempts=3, initial=0))
    def flaky() -> str:
        "Ask a service that is not always there."
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionError("no answer")
        return "it answered"

    model = ScriptedModel([call("flaky"), "Done."])
    agent = hold.register(Agent("agent", model=model, tools=[flaky]))
    await finished(hold, agent)
    assert tries == 3
    assert tool_results(model) == ["it answered"], "the model sees none of the tries that failed"


@section(STATE_MANAGEMENT, "Mini Code Example", ours="`Agent`, `@tool`, `Budget`")
async def test_mini_code_example(hold: Holdfast) -> None:
    devops = hold.register(
        Agent(
            "devops",
            instructions="You are an autonomous DevOps agent.",
            tools=[tool(risk="read_only")(check_disk), tool(risk="write_local", effect="idempotent")(clean_logs)],
            model=ScriptedModel([call("check_disk"), call("clean_logs"), "Done: 20GB are free."]),
            budget=Budget(max_steps=5, max_wall_time_ms=300_000),
        )
    )
    task = await hold.submit(devops, "I'm out of disk space. Fix it.", deadline=300)
    async with hold.worker():
        assert await ended(task) == "Done: 20GB are free."
    steps = await hold.store.steps(task.id)
    assert {step.key for step in steps} >= {"llm:1", "check_disk:1.0", "llm:2", "clean_logs:2.0", "llm:3"}
    assert {step.state for step in steps} == {StepState.COMPLETED}
    assert (await hold.budget(task)).lines[Meter.STEPS].spent == 5
