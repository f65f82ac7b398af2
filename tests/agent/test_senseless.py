"""Answers that make no sense go back to the model as errors, a limited number of times."""

import pytest

from holdfast import AgentStuck, Holdfast, Reply, Request, StatePatch, StepState, TaskFailed, ToolCall, tool
from holdfast.agent.scripted import Answer, Line, ScriptedCall, call
from holdfast.agent.transcript import EMPTY_ANSWER
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import PATIENCE, finished, heard, keys_of, look, register, shown, steps_of, tool_results

WEIRD_NAMES = [
    "",
    " ",
    "nope",
    "look ",
    "look\n",
    "a" * 5_000,
    "line\nbreak\ttab",
    "llm:1",
    "look:1.0",
    "holdfast:child:look",
    "verify/judge",
    "ünïcödé 🙂",
    "nul\0",
    "lone \ud800 surrogate",
    "__class__",
]


@pytest.mark.parametrize("name", WEIRD_NAMES, ids=ascii)
async def test_a_tool_that_does_not_exist_is_an_error_for_the_model(hold: Holdfast, name: str) -> None:
    agent, model = register(hold, [ScriptedCall(name), "done"], tools=[look], builtins=False)
    handle = await finished(hold, agent)
    [error] = tool_results(model)
    assert error.startswith("Error: BadArguments: there is no tool ")
    assert error.endswith("; there are: look")
    assert len(error) < 300
    first, refused, _ = await steps_of(hold, handle)
    assert (first.key, refused.key) == ("llm:1", "unknown:1.0")
    assert (refused.kind, refused.state) == ("tool", StepState.FAILED)


@pytest.mark.parametrize("name", ["nul\0", "lone \ud800 surrogate", "a" * 5_000], ids=ascii)
async def test_a_weird_name_again_and_again_is_a_loop_like_any_other(either: Holdfast, name: str) -> None:
    agent, model = register(either, [*[ScriptedCall(name)] * 4, "done"], tools=[look])
    handle = await finished(either, agent)
    assert (await either.state(handle)).risk_flags == ("loop_suspected",)
    assert "This is call number 4 of" in tool_results(model)[-1]
    assert len(tool_results(model)[-1]) < 500


async def test_weird_names_on_a_server(either: Holdfast) -> None:
    agent, model = register(either, [[ScriptedCall(name) for name in WEIRD_NAMES], "done"], tools=[look])
    await finished(either, agent)
    assert len(tool_results(model)) == len(WEIRD_NAMES)


@pytest.mark.parametrize(
    "arguments",
    ["no json", '{"place": 3}', '{"plaice": "here"}', "[1]", '{"place": "\ud800"}', "{" * 3_000, '{"place": NaN}'],
    ids=ascii,
)
async def test_wrong_arguments_are_an_error_for_the_model(hold: Holdfast, arguments: str) -> None:
    called = 0

    @tool
    async def act(place: str) -> str:
        """Act."""
        nonlocal called
        called += 1
        return place

    agent, model = register(hold, [ScriptedCall("act", arguments), call("act", place="there"), "done"], tools=[act])
    handle = await finished(hold, agent)
    first, second = tool_results(model)
    assert first.startswith("Error: BadArguments: the arguments of act are wrong: ")
    assert second == "there"
    assert called == 1
    states = {step.key: step.state for step in await steps_of(hold, handle)}
    assert states["act:1.0"] is StepState.FAILED
    assert len(await hold.store.effects(task_id=handle.id)) == 1


async def test_a_good_call_beside_a_bad_one_is_made(hold: Holdfast) -> None:
    agent, model = register(hold, [[call("nope"), call("look"), call("look", x=1)], "done"], tools=[look])
    handle = await finished(hold, agent)
    assert [text.split(":")[0] for text in tool_results(model)] == ["Error", "nothing here", "Error"]
    assert await keys_of(hold, handle) == ["llm:1", "unknown:1.0", "look:1.1", "look:1.2", "llm:2"]


async def test_senseless_answers_are_bounded(hold: Holdfast) -> None:
    agent, model = register(hold, lambda _: call("nope"), tools=[look], max_senseless_answers=2)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match=r"3 answers in a row .* max_senseless_answers \(2\)") as failed:
            await handle.result(timeout=PATIENCE)
    assert failed.value.failure.type_name.endswith(AgentStuck.__name__)
    assert len(model.requests) == 3
    assert (await handle.task()).attempts == 1


async def test_a_sensible_answer_in_between_resets_the_count(hold: Holdfast) -> None:
    script: list[Line] = [call("nope"), call("nope", x=1), call("look"), call("nope", x=2), call("nope", x=3), "done"]
    agent, _ = register(hold, script, tools=[look], max_senseless_answers=2)
    handle = await finished(hold, agent)
    assert await handle.result() == "done"


async def test_one_good_call_makes_an_answer_sensible(hold: Holdfast) -> None:
    def answer(request: Request) -> Answer:
        return "done" if request.turn == 5 else [call("nope"), call("look", place=str(request.turn))]

    agent, _ = register(hold, answer, tools=[look], max_senseless_answers=0)
    handle = await finished(hold, agent)
    assert await handle.result() == "done"


@pytest.mark.parametrize("empty", ["", "  \n", Reply()], ids=repr)
async def test_an_empty_answer_is_asked_again_for(hold: Holdfast, empty: Answer) -> None:
    agent, model = register(hold, [empty, "done"], builtins=False)
    handle = await finished(hold, agent)
    assert await handle.result() == "done"
    assert shown(model) == [("user", "go"), ("user", EMPTY_ANSWER)]
    assert await keys_of(hold, handle) == ["llm:1", "llm:2"]
    assert [request.turn for request in model.requests] == [0, 1]


async def test_empty_answers_are_bounded(hold: Holdfast) -> None:
    agent, model = register(hold, lambda _: "", max_senseless_answers=1)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match="max_senseless_answers"):
            await handle.result(timeout=PATIENCE)
    assert len(model.requests) == 2


async def test_an_empty_answer_reads_the_same_in_the_next_round(hold: Holdfast) -> None:
    accepted = iter(["no good", True])
    agent, model = register(hold, ["", "first", "second"], verify=lambda _ctx, _result: next(accepted))
    await finished(hold, agent)
    assert [text for text in heard(model) if "not accepted" not in text] == ["go", EMPTY_ANSWER]
    assert ("assistant", "") not in shown(model)


# Getting nowhere


async def test_identical_calls_are_flagged_reported_and_stopped(hold: Holdfast) -> None:
    agent, model = register(hold, lambda _: call("look"), tools=[look], max_identical_calls=5)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match=r"look was called 6 times .* max_identical_calls \(5\)"):
            await handle.result(timeout=PATIENCE)
    assert (await hold.state(handle)).risk_flags == ("loop_suspected",)
    assert tool_results(model)[:2] == ["nothing here", "nothing here"]
    assert "This is call number 3 of look" in tool_results(model)[2]
    assert len(model.requests) == 6
    assert "Flags: loop_suspected" in shown(model)[0][1]


async def test_identical_calls_in_parallel_count_too(hold: Holdfast) -> None:
    agent, _ = register(hold, lambda _: [call("look")] * 6, tools=[look], max_identical_calls=5)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match="max_identical_calls"):
            await handle.result(timeout=PATIENCE)


async def test_polling_is_not_a_loop(hold: Holdfast) -> None:
    polled = 0

    @tool(risk="read_only")
    async def poll() -> str:
        """Look how far it is."""
        nonlocal polled
        polled += 1
        return f"{polled} %"

    def answer(_: Request) -> Answer:
        return "done" if polled == 30 else call("poll")

    agent, _ = register(hold, answer, tools=[poll], max_identical_calls=3)
    handle = await finished(hold, agent)
    assert await handle.result() == "done"
    assert (await hold.state(handle)).risk_flags == ()


async def test_a_message_lets_a_stuck_agent_go_on(hold: Holdfast) -> None:
    def answer(request: Request) -> Answer:
        hint = [message for message in request.messages if message.content == "It is in the attic."]
        return "found" if hint else call("look")

    agent, model = register(hold, answer, tools=[look], max_identical_calls=3)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match=r"hold\.resume"):
            await handle.result(timeout=PATIENCE)
        asked = len(model.requests)
        await hold.resume(handle, message="It is in the attic.")
        assert await handle.result(timeout=PATIENCE) == "found"
    assert len(model.requests) == asked + 1
    assert heard(model) == ["go", "It is in the attic."]


async def test_without_a_message_a_stuck_agent_stays_stuck_without_a_call(hold: Holdfast) -> None:
    agent, model = register(hold, lambda _: call("look"), tools=[look], max_identical_calls=2)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        for _ in range(2):
            with pytest.raises(TaskFailed, match="max_identical_calls"):
                await handle.result(timeout=PATIENCE)
            assert len(model.requests) == 3
            await hold.resume(handle)
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)


async def test_a_flag_that_a_person_cleared_stays_cleared_after_a_crash(app: Holdfast, box: Sandbox) -> None:
    @tool
    async def act() -> str:
        """Act."""
        task = await handle.task()
        cleared = StatePatch(clear_flags=("loop_suspected",))
        await app.patch_state(handle, cleared, version=task.version, by="ann")
        return "acted"

    agent, _ = register(app, [call("look"), call("look"), call("look"), call("act"), "done"], tools=[look, act])
    box.crash("llm:5", when="before_effect")
    handle = await app.submit(agent, "go")
    await handle.result(timeout=600)
    assert "loop_suspected" not in (await app.state(handle)).risk_flags


async def test_nonsense_survives_crashes(app: Holdfast) -> None:
    script: list[Line] = [
        [ScriptedCall("nope"), ScriptedCall("look", "{")],
        "",
        Reply(tool_calls=(ToolCall(id="", name="look", arguments=""),) * 3),
        call("look"),
        "done",
    ]
    agent, model = register(app, script, tools=[look])

    async def scenario(box: Sandbox) -> tuple[str, list[tuple[str, str]], tuple[str, ...]]:
        handle = await box.hold.submit(agent, "go")
        result = await handle.result(timeout=600)
        return result, shown(model), (await box.hold.state(handle)).risk_flags

    survived = await crash_everywhere(app, scenario)
    assert survived.result[0] == "done"
    assert survived.result[2] == ("loop_suspected",)
