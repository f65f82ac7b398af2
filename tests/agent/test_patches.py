"""What tools, observers, the model itself and people change in an agent's state."""

import logging
from datetime import timedelta

import pytest

from holdfast import (
    ArtifactRef,
    Holdfast,
    KnownFact,
    ModelError,
    Retry,
    StatePatch,
    TaskFailed,
    TaskState,
    ToolContext,
    decode,
    tool,
)
from holdfast.agent.scripted import Line, ScriptedCall, call
from holdfast.model.agent_state import AgentState
from holdfast.model.task import JsonValue
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import PATIENCE, asked, finished, look, output_of, register, shown, tool_results
from tests.engine.support import reaches


async def test_a_tool_returns_a_patch_beside_its_result(either: Holdfast) -> None:
    @tool(risk="read_only")
    async def measure() -> tuple[int, StatePatch]:
        """Measure."""
        return 95, StatePatch(append_facts=(KnownFact(key="disk", value="95%", source="df"),), set_flags=("full",))

    agent, model = register(
        either, [call("update_plan", plan=["look", "mend"], current_step="look"), call("measure"), "done"],
        tools=[measure],
    )  # fmt: skip
    handle = await finished(either, agent)
    assert tool_results(model)[-1] == "95"
    state = await either.state(handle)
    [fact] = state.known_facts
    assert (fact.key, fact.value, fact.source, fact.step) == ("disk", "95%", "df", "look")
    assert fact.at is not None
    assert state.risk_flags == ("full",)
    [change] = [one for one in await either.state_history(handle) if one.step_key == "measure:2.0"]
    assert change.author == "tool:measure"
    assert "Flags: full" in shown(model)[0][1]
    assert "disk" in shown(model)[0][1]


async def test_a_patch_alone_is_a_result_too(hold: Holdfast) -> None:
    @tool(risk="read_only")
    def note() -> StatePatch:
        """Note."""
        return StatePatch(add_questions=("Why?",))

    agent, model = register(hold, [call("note"), "done"], tools=[note])
    handle = await finished(hold, agent)
    assert tool_results(model) == ["done"]
    assert (await hold.state(handle)).open_questions == ("Why?",)


async def test_a_pair_that_is_not_a_patch_is_data(hold: Holdfast) -> None:
    @tool(risk="read_only")
    def pair() -> tuple[int, str]:
        """Return two things."""
        return 1, "two"

    agent, model = register(hold, [call("pair"), "done"], tools=[pair])
    await finished(hold, agent)
    assert tool_results(model) == ['[1, "two"]']


async def test_a_patch_that_does_not_fit_is_left_out_and_the_result_counts(
    hold: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    @tool
    async def act() -> tuple[str, StatePatch]:
        """Act."""
        done.append("acted")
        return "acted", StatePatch(resolve_questions=("Is it full?",))

    agent, model = register(hold, [call("act"), "done"], tools=[act])
    with caplog.at_level(logging.WARNING):
        handle = await finished(hold, agent)
    assert (done, tool_results(model)) == (["acted"], ["acted"])
    assert "the patch of act:1.0 was left out: the question 'Is it full?' is not open" in caplog.text
    assert (await handle.task()).state is TaskState.COMPLETED


async def test_artifacts_of_a_patch_are_linked_to_the_task(hold: Holdfast) -> None:
    @tool(risk="read_only")
    async def report(context: ToolContext) -> tuple[str, StatePatch]:
        """Write a report."""
        kept = await context.artifacts.write(b"all is well", media_type="text/plain")
        reference = ArtifactRef(artifact_id=kept.id, type="report", summary="All is well.", bytes=kept.size)
        return "written", StatePatch(add_artifacts=(reference,))

    agent, _ = register(hold, [call("report"), "done"], tools=[report])
    handle = await finished(hold, agent)
    [link] = await hold.store.artifact_links(handle.id)
    [reference] = (await hold.state(handle)).artifacts
    assert (link.artifact_id, link.type, link.bytes) == (reference.artifact_id, "report", 11)


async def test_patches_of_parallel_calls_all_count_whatever_crashes(app: Holdfast) -> None:
    @tool(risk="read_only")
    async def find(number: int) -> tuple[int, StatePatch]:
        """Find."""
        return number, StatePatch(append_facts=(KnownFact(key=str(number), value=number, source="find"),))

    agent, _ = register(app, [[call("find", number=n) for n in range(4)], call("find", number=9), "done"], tools=[find])

    async def scenario(box: Sandbox) -> list[str]:
        handle = await box.hold.submit(agent, "go")
        await handle.result(timeout=3600)
        return sorted(fact.key for fact in (await box.hold.state(handle)).known_facts)

    survived = await crash_everywhere(app, scenario)
    assert survived.result == ["0", "1", "2", "3", "9"]


# Observing


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_observer_turns_results_into_patches(app: Holdfast, box: Sandbox, is_async: bool) -> None:
    seen: list[tuple[object, ...]] = []

    def observe(name: str, arguments: object, result: JsonValue, state: AgentState) -> StatePatch | None:
        seen.append((name, arguments, result, state.goal))
        if result == "nothing a":
            return StatePatch(append_facts=(KnownFact(key="a", value=result, source="observer"),))
        return None

    async def observe_async(*what: object) -> StatePatch | None:
        return observe(*what)  # type: ignore[arg-type]

    observer = observe_async if is_async else observe
    agent, _ = register(
        app, [call("look", place="a"), call("look", place="b"), "done"], tools=[look], observe=observer
    )  # fmt: skip
    box.crash("llm:3", when="before_effect")
    handle = await app.submit(agent, "go")
    await handle.result(timeout=3600)
    assert seen == [  # once each: the replay after the crash asks no tool
        ("look", {"place": "a"}, "nothing a", "go"),
        ("look", {"place": "b"}, "nothing b", "go"),
    ]
    assert [fact.key for fact in (await app.state(handle)).known_facts] == ["a"]
    [change] = [one for one in await app.state_history(handle) if one.step_key == "look:1.0"]
    assert change.author == "observe"


@pytest.mark.parametrize("nonsense", [ValueError("no idea"), "a text", StatePatch(resolve_questions=("never asked",))])
async def test_an_observer_cannot_undo_that_the_call_was_made(
    hold: Holdfast, caplog: pytest.LogCaptureFixture, nonsense: object
) -> None:
    calls: list[str] = []

    def observe(name: str, *_: object) -> object:
        calls.append(name)
        if isinstance(nonsense, Exception):
            raise nonsense
        return nonsense

    @tool
    async def act() -> str:
        """Act."""
        return "acted"

    agent, model = register(hold, [call("act"), "done"], tools=[act], observe=observe)
    handle = await finished(hold, agent)
    assert (calls, tool_results(model)) == (["act"], ["acted"])
    assert len(await hold.state_history(handle)) == 1
    assert "act:1.0" in caplog.text


async def test_an_observer_that_changes_what_it_is_shown_changes_no_record_and_no_undo(hold: Holdfast) -> None:
    undone: list[object] = []

    def observe(_name: str, arguments: dict[str, list[str]], *_: object) -> None:
        arguments["places"].append("seen")

    def undo(_result: str, places: list[str]) -> None:
        undone.append(places)

    @tool(effect="idempotent", compensate=undo)
    async def act(places: list[str]) -> str:
        """Act."""
        return f"acted in {places}"

    once = Retry(max_attempts=1)
    script: list[Line] = [call("act", places=["a"]), ModelError("it is over")]
    agent, _ = register(hold, script, tools=[act], observe=observe, retry=once, model_retry=once)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
    [effect] = await hold.store.effects(task_id=handle.id)
    assert (undone, decode(effect.arguments)) == ([["a"]], [{"places": ["a"]}])


# Built in


async def test_the_model_keeps_its_plan_and_facts(hold: Holdfast) -> None:
    script: list[Line] = [
        call("update_plan", plan=["look", "mend"], current_step="look"),
        call("record_fact", key="cause", value="rust", confidence=0.8),
        call("update_plan", current_step="mend", completed=["look"]),
        call("update_plan", current_step="dance"),
        call("record_fact", key="cause", value="rust", confidence=3),
        "done",
    ]
    agent, model = register(hold, script)
    handle = await finished(hold, agent)
    state = await hold.state(handle)
    assert (state.plan, state.current_step, state.completed_steps) == (("look", "mend"), "mend", ("look",))
    [fact] = state.known_facts
    assert (fact.key, fact.value, fact.source, fact.step, fact.confidence) == ("cause", "rust", "model", "look", 0.8)
    assert tool_results(model) == [
        "The plan is kept.",
        "Kept.",
        "The plan is kept.",
        "Error: ToolError: 'dance' is not a step of the plan; the plan is: ['look', 'mend']",
        "Error: ToolError: confidence is 3.0; give a number from 0 to 1",
    ]
    assert "[x] look\n[>] mend" in shown(model)[0][1]


async def test_the_model_keeps_and_reads_artifacts(hold: Holdfast) -> None:
    found: list[str] = []

    def read(how: str, pattern: str | None = None) -> ScriptedCall:
        return call("read_artifact", artifact_id=found[0], how=how, pattern=pattern)

    def remember_id(request: object) -> ScriptedCall:
        del request
        found.append(tool_results(model)[-1].removeprefix("Kept as artifact ").removesuffix("."))
        return read("head")

    script: list[Line] = [
        call("save_artifact", name="a.md", content="first\nsecond\nlast", summary="three lines", type="draft"),
        remember_id,
        lambda _: read("grep", "second"),
        lambda _: read("grep"),
        call("read_artifact", artifact_id="0" * 64),
        "done",
    ]
    agent, model = register(hold, script)
    handle = await finished(hold, agent)
    _, head, grep, no_pattern, missing = tool_results(model)
    assert head == "first\nsecond\nlast"
    assert "second" in grep
    assert "first" not in grep
    assert no_pattern.startswith("Error: ToolError: ")
    assert missing.startswith("Error: ToolError: ")
    [reference] = (await hold.state(handle)).artifacts
    assert (reference.type, reference.summary, reference.bytes) == ("draft", "a.md: three lines", 17)
    assert [link.artifact_id for link in await hold.store.artifact_links(handle.id)] == [reference.artifact_id]
    assert await hold.artifacts.read_text(reference.artifact_id) == "first\nsecond\nlast"


async def test_the_model_remembers_beyond_the_task(hold: Holdfast) -> None:
    agent, model = register(
        hold,
        [
            call("remember", entity="ann", attribute="likes", value="tea", confidence=0.9),
            call("recall", entity="ann"),
            call("recall", text="tea"),
            call("recall", entity="bob"),
            call("recall"),
            call("remember", entity="ann", attribute="likes", value="tea", confidence=7),
            "done",
        ],
        name="memo",
    )
    await finished(hold, agent)
    known = '[{"attribute": "likes", "entity": "ann", "source": "agent:memo", "value": "tea"}]'
    assert tool_results(model)[:5] == [
        "Remembered.",
        known,
        known,
        "[]",
        "Error: ToolError: give either entity or text",
    ]
    assert tool_results(model)[5].startswith("Error: ToolError: ")
    [fact] = await hold.memory.recall("ann")
    assert (fact.value, fact.source) == ("tea", "agent:memo")


@pytest.mark.parametrize(("builtins", "names"), [(False, []), (True, 7), (["recall"], ["recall"])])
async def test_built_in_tools_can_be_chosen(hold: Holdfast, builtins: object, names: object) -> None:
    agent, model = register(hold, ["done"], builtins=builtins)
    await finished(hold, agent)
    offered = [spec.name for spec in model.requests[0].tools]
    assert offered == names or len(offered) == names


# Questions


async def test_a_question_waits_for_a_person_without_a_worker(either: Holdfast) -> None:
    agent, model = register(either, [call("ask_question", question="Which disk?"), "done"], deciders=["ann"])
    handle = await either.submit(agent, "go")
    async with either.worker():
        question = await asked(either, handle)
        await reaches(handle, TaskState.WAITING)
        task = await handle.task()
        assert task.owner is None
        assert (question.kind, question.question, question.deciders) == ("question", "Which disk?", ("ann",))
        assert question.step_key == "ask_question:1.0"
        assert (await either.state(handle)).open_questions == ("Which disk?",)
        await either.answer(question.id, {"disk": "sda"}, by="ann")
        await handle.result(timeout=PATIENCE)
    assert tool_results(model) == ['{"disk": "sda"}']
    state = await either.state(handle)
    [fact] = state.known_facts
    assert (fact.key, fact.value, fact.source) == ("Which disk?", {"disk": "sda"}, "human:ann")
    assert fact.at == (await either.store.approval(question.id)).decided_at  # type: ignore[union-attr]
    assert state.open_questions == ()
    assert await output_of(either, handle, "ask_question:1.0") == {"value": {"disk": "sda"}}


async def test_a_refused_question_is_closed_and_the_model_gets_an_error(hold: Holdfast) -> None:
    agent, model = register(hold, [call("ask_question", question="Which disk?"), "done"])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, handle)
        await hold.reject(question.id, by="ann", note="find out yourself")
        await handle.result(timeout=PATIENCE)
    [error] = tool_results(model)
    assert error == "Error: Rejected: 'Which disk?': rejected by ann: find out yourself"
    state = await hold.state(handle)
    assert (state.open_questions, state.known_facts) == ((), ())


@pytest.mark.parametrize("question", ["", " \n", "nul \0", "x" * 100_000], ids=["empty", "blank", "nul", "long"])
async def test_a_question_that_cannot_be_asked_is_the_models_mistake(hold: Holdfast, question: str) -> None:
    agent, model = register(hold, [call("ask_question", question=question), "done"])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        assert await handle.result(timeout=PATIENCE) == "done"
    [answer] = tool_results(model)
    assert answer.startswith("Error: BadArguments: ")


async def test_questions_in_parallel_and_the_same_one_twice(hold: Holdfast) -> None:
    questions = [call("ask_question", question=text) for text in ("Who?", "Who?", "When?")]
    agent, model = register(hold, [questions, "done"])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        for number in range(3):
            while not (open_ones := await hold.approvals(handle)):
                await reaches(handle, TaskState.WAITING)
            mine = min(open_ones, key=lambda one: one.step_key)
            await hold.answer(mine.id, f"{mine.step_key} {number}", by="ann")
        await handle.result(timeout=PATIENCE)
    assert tool_results(model) == [f"ask_question:1.{n} {n}" for n in range(3)]
    assert (await hold.state(handle)).open_questions == ()


async def test_a_question_survives_crashes_and_days(app: Holdfast) -> None:
    agent, model = register(app, [call("ask_question", question="Who?"), "done"])

    async def scenario(box: Sandbox) -> tuple[list[str], list[tuple[str, JsonValue, str]], tuple[str, ...]]:
        handle = await box.hold.submit(agent, "go")
        question = await asked(box.hold, handle)
        await box.advance(timedelta(days=2))
        assert (await handle.task()).state is TaskState.WAITING
        await box.hold.answer(question.id, "me", by="ann")
        await handle.result(timeout=3600)
        state = await box.hold.state(handle)
        return (
            tool_results(model),
            [(fact.key, fact.value, fact.source) for fact in state.known_facts],
            state.open_questions,
        )

    survived = await crash_everywhere(app, scenario)
    assert survived.result == (["me"], [("Who?", "me", "human:ann")], ())
