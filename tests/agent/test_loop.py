"""The loop: every model call and every tool call is a step, and what was recorded is never asked or done again."""

from __future__ import annotations

import asyncio
import threading

from holdfast import Handle, Holdfast, Request, StepState, TaskState, ToolContext, current_effect_id, tool
from holdfast.agent.scripted import Answer, Line, call
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import (
    PATIENCE,
    finished,
    heard,
    keys_of,
    look,
    output_of,
    register,
    shown,
    steps_of,
    tool_results,
)


async def test_every_model_call_and_tool_call_is_a_journaled_step(either: Holdfast) -> None:
    script: list[Line] = [[call("look", place="left"), call("look", place="right")], call("look"), "It is nowhere."]
    agent, model = register(either, script, tools=[look], instructions="You search.")
    handle = await finished(either, agent, "Find it.")
    assert await handle.result() == "It is nowhere."
    steps = await steps_of(either, handle)
    assert [(step.key, step.kind) for step in steps] == [
        ("llm:1", "llm"),
        ("look:1.0", "tool"),
        ("look:1.1", "tool"),
        ("llm:2", "llm"),
        ("look:2.0", "tool"),
        ("llm:3", "llm"),
    ]
    assert all(step.state is StepState.COMPLETED and step.round == 1 for step in steps)
    reply = (await output_of(either, handle, "llm:2"))["reply"]
    assert reply["tool_calls"] == [{"id": "call_1_0", "name": "look", "arguments": "{}"}]
    assert await output_of(either, handle, "look:1.1") == {"value": "nothing right"}
    assert shown(model) == [
        ("system", "You search."),
        ("user", "Find it."),
        ("assistant", ""),
        ("tool", "nothing left"),
        ("tool", "nothing right"),
        ("assistant", ""),
        ("tool", "nothing here"),
    ]
    assert [request.turn for request in model.requests] == [0, 1, 2]


async def test_a_model_without_tools_just_answers(hold: Holdfast) -> None:
    agent, model = register(hold, ["Hello."], builtins=False)
    handle = await finished(hold, agent, "Hi.")
    assert await handle.result() == "Hello."
    assert shown(model) == [("user", "Hi.")]
    assert model.requests[0].tools == ()
    assert (await handle.task()).state is TaskState.COMPLETED


async def test_recorded_answers_count_whatever_the_model_would_say_now(app: Holdfast) -> None:
    sampled = 0
    last: list[list[tuple[str, str]]] = []

    def sample(request: Request) -> Answer:
        nonlocal sampled
        sampled += 1
        assert request.turn is not None
        return call("look", place=f"at {sampled}") if request.turn < 3 else f"final {sampled}"

    agent, model = register(app, sample, tools=[look])

    async def scenario(box: Sandbox) -> tuple[int, bool]:
        handle = await box.hold.submit(agent, "go")
        result = await handle.result(timeout=600)
        steps = [step for step in await steps_of(box.hold, handle) if step.kind == "llm"]
        chosen = [
            (await output_of(box.hold, handle, step.key))["reply"].get("tool_calls", [{"arguments": None}])[0]
            for step in steps
        ]
        places = [one["arguments"] for one in chosen[:-1]]
        # What the tools did, and what the model saw in the end, is what the recorded answers asked for.
        said = [content for role, content in shown(model) if role == "tool"]
        assert [f'{{"place": "{text.removeprefix("nothing ")}"}}' for text in said] == places
        assert (await output_of(box.hold, handle, "llm:4"))["reply"]["content"] == result
        last.append(shown(model))
        return len(steps), result.startswith("final")

    survived = await crash_everywhere(app, scenario)
    assert survived.crashes > 10
    assert survived.result == (4, True)
    assert len({str(one) for one in last}) > 1  # they really were sampled differently


async def test_a_crash_costs_the_call_under_way_and_nothing_else(app: Holdfast, box: Sandbox) -> None:
    agent, model = register(app, [call("look", place="a"), call("look", place="b"), "done"], tools=[look])
    crash = box.crash("look:2.0", when="after_effect")
    handle = await app.submit(agent, "go")
    assert await handle.result(timeout=600) == "done"
    assert crash.happened == 1
    trace = await box.trace(handle)
    assert (trace.runs["llm:1"], trace.runs["llm:2"], trace.runs["look:1.0"]) == (1, 1, 1)
    assert (trace.runs["look:2.0"], trace.deaths) == (2, 1)
    assert len(model.requests) == 3


async def test_parallel_calls_run_at_the_same_time_and_answer_in_order(hold: Holdfast) -> None:
    here = asyncio.Barrier(3)

    @tool(risk="read_only")
    async def meet(number: int) -> str:
        """Wait for the others."""
        async with asyncio.timeout(PATIENCE):
            await here.wait()
        for _ in range(10 * (3 - number)):
            await asyncio.sleep(0)  # the first one is the last to be done
        return f"met {number}"

    agent, model = register(hold, [[call("meet", number=n) for n in range(3)], "done"], tools=[meet])
    handle = await finished(hold, agent)
    assert tool_results(model) == ["met 0", "met 1", "met 2"]
    assert await keys_of(hold, handle) == ["llm:1", "meet:1.0", "meet:1.1", "meet:1.2", "llm:2"]
    results = [message for message in model.requests[-1].messages if message.role == "tool"]
    assert [message.tool_call_id for message in results] == ["call_0_0", "call_0_1", "call_0_2"]


async def test_blocking_tools_run_in_threads_side_by_side_and_async_ones_on_the_loop(hold: Holdfast) -> None:
    here = threading.Barrier(2)
    threads: dict[str, threading.Thread] = {}

    @tool(risk="read_only")
    def block(number: int) -> int:
        """Wait for the other, and hold a thread meanwhile."""
        threads[f"block {number}"] = threading.current_thread()
        return here.wait(timeout=PATIENCE) * 0 + number

    @tool(risk="read_only")
    async def flow() -> None:
        """Stay on the loop."""
        threads["flow"] = threading.current_thread()

    agent, model = register(
        hold, [[call("block", number=1), call("block", number=2), call("flow")], "done"], tools=[block, flow]
    )
    await finished(hold, agent)
    assert tool_results(model) == ["1", "2", "null"]
    assert threads["flow"] is threading.current_thread()
    assert len(set(threads.values())) == 3


async def test_a_tool_gets_its_effect_id_and_what_the_agent_knows(hold: Holdfast) -> None:
    seen: list[tuple[str, ToolContext]] = []

    @tool(risk="write_local")
    async def act(place: str, context: ToolContext, effect_id: str) -> str:
        """Act."""
        del place
        assert current_effect_id() == effect_id
        seen.append((effect_id, context))
        return "acted"

    agent, model = register(hold, [call("act", place="a"), call("act", place="b"), "done"], tools=[act], name="actor")
    handle = await finished(hold, agent, "Do it twice.")
    (first, context), (second, _) = seen
    assert first == context.effect_id
    assert first != second
    assert (context.task_id, context.agent_id, context.step_key) == (handle.id, "actor", "act:1.0")
    assert context.state.goal == "Do it twice."
    [spec] = [spec for spec in model.requests[0].tools if spec.name == "act"]
    assert list(spec.parameters["properties"]) == ["place"]
    effects = await hold.store.effects(task_id=handle.id)
    assert {effect.effect_id for effect in effects} == {first, second}


async def test_a_model_is_given_the_same_effect_id_for_every_try_of_a_call(app: Holdfast, box: Sandbox) -> None:
    agent, model = register(app, [OSError("cut"), "one"], builtins=False)
    box.crash("llm:1", when="after_effect")
    handle = await app.submit(agent, "go")
    assert await handle.result(timeout=600) == "one"
    assert len(model.requests) == 3
    assert len({request.effect_id for request in model.requests}) == 1


async def test_text_beside_calls_is_kept_and_is_not_a_final_answer(hold: Holdfast) -> None:
    agent, model = register(hold, [["Let me see. ", call("look")], "done"], tools=[look])
    handle = await finished(hold, agent)
    assert await handle.result() == "done"
    assert shown(model)[1:] == [("assistant", "Let me see. "), ("tool", "nothing here")]
    assert heard(model) == ["go"]


async def test_an_agent_is_submitted_with_a_key_like_any_task(hold: Holdfast) -> None:
    agent, model = register(hold, ["done"])
    first = await hold.submit(agent, "go", key="once")
    again: Handle[str] = await hold.submit("agent", "go", key="once")
    assert first.id == again.id
    async with hold.worker():
        assert await first.result(timeout=PATIENCE) == "done"
    assert len(model.requests) == 1


async def test_an_agent_can_be_run_in_place(hold: Holdfast) -> None:
    agent, _ = register(hold, [call("look"), "done"], tools=[look])
    handle = await hold.submit(agent, "go")
    assert await hold.run(handle) == "done"
