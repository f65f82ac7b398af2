"""What is too large is refused with an error at every entry point. What is stored already never stops an agent."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import (
    AgentState,
    Approval,
    Context,
    Handle,
    Holdfast,
    InvalidValue,
    KnownFact,
    Retry,
    StatePatch,
    TaskFailed,
    tool,
)
from holdfast.agent.prompt import ALWAYS_BYTES, _choose, _describe
from holdfast.agent.scripted import Line, call
from holdfast.model.canonical import canonical
from holdfast.model.commit import Commit, Expect
from holdfast.model.operations import ApplyPatch
from holdfast.model.state_size import FACT_BYTES, FACTS_BYTES, MESSAGE_BYTES, TEXT_BYTES
from tests.agent.support import PATIENCE, asked, finished, register, tool_results

LONG = "word " * (TEXT_BYTES // 4)
HUGE = "word " * 90_000
ONE_TRY = Retry(max_attempts=1)


def facts(*values: object) -> tuple[KnownFact, ...]:
    return tuple(KnownFact(key=f"k{number}", value=value, source="ann") for number, value in enumerate(values))


async def begun(hold: Holdfast, **options: Any) -> tuple[Handle[str], Approval]:  # noqa: ANN401
    """An agent's task that waits for an answer."""
    script: list[Line] = [call("ask_question", question="Where?"), "done"]
    agent, _ = register(hold, script, retry=ONE_TRY, **options)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        return handle, await asked(hold, handle)


async def test_doors_of_an_application(either: Holdfast) -> None:
    handle, question = await begun(either)
    version = (await handle.task()).version
    for patch in (
        StatePatch(append_facts=facts("x" * FACT_BYTES)),
        StatePatch(add_questions=(LONG,)),
        StatePatch(replace_plan=(LONG,)),
        StatePatch(set_flags=(LONG,)),
    ):
        with pytest.raises(InvalidValue, match=r"takes [\d,]+ bytes, and [\d,]+ are allowed"):
            await either.patch_state(handle, patch, version=version, by="ann", reason="")
        with pytest.raises(InvalidValue, match=r"takes [\d,]+ bytes, and [\d,]+ are allowed"):
            await either.fork(handle, patch=patch, by="ann")
    with pytest.raises(InvalidValue, match=r"the message takes 256,001 bytes, and 256,000 are allowed"):
        await either.send(handle, "x" * (MESSAGE_BYTES + 1))
    with pytest.raises(InvalidValue, match=r"the fact 'disk' 'size' takes 64,002 bytes"):
        await either.memory.store("disk", "size", "x" * 64_000)
    task = await handle.task()
    assert task.version == version, "nothing was changed"
    await either.send(handle, "x" * MESSAGE_BYTES)
    await either.answer(question.id, "here " * 50_000, by="ann")
    async with either.worker():
        assert await handle.result(timeout=PATIENCE) == "done"
    [fact] = (await either.state(handle)).known_facts
    assert "bytes left out" in str(fact.value), "a long answer is in the state by its ends"


async def test_a_resume_takes_no_longer_message(hold: Holdfast) -> None:
    agent, _ = register(hold, [RuntimeError("no such model"), "done"], retry=ONE_TRY)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)
        with pytest.raises(InvalidValue, match="the message takes"):
            await hold.resume(handle, message="x" * (MESSAGE_BYTES + 1))
        with pytest.raises(InvalidValue, match="the feedback takes"):
            await hold.retry(handle, feedback="x" * (MESSAGE_BYTES + 1))
        await hold.resume(handle, message="go on")
        assert await handle.result(timeout=PATIENCE) == "done"


async def test_a_task_asks_no_longer_question(hold: Holdfast) -> None:
    @hold.task(retry=ONE_TRY)
    async def asks(ctx: Context) -> str:
        try:
            await ctx.ask(LONG)
        except InvalidValue as error:
            return str(error)
        return "asked"

    handle = await hold.submit(asks)
    async with hold.worker():
        assert "the question takes" in await handle.result(timeout=PATIENCE)
    assert await hold.approvals() == []


async def test_the_agents_own_tools_tell_the_model(hold: Holdfast) -> None:
    calls = [
        call("record_fact", key="k", value="x" * FACT_BYTES),
        call("ask_question", question=LONG),
        call("save_artifact", name="n", content="c", summary=LONG),
        call("save_artifact", name="n", content="c", summary="s", type=LONG),
        call("remember", entity="e", attribute="a", value="x" * 64_000),
        call("update_plan", plan=[LONG]),
    ]
    agent, model = register(hold, [calls, "done"], max_senseless_answers=10)
    handle = await finished(hold, agent)
    for result in tool_results(model):
        assert result.startswith("Error: "), result[:100]
        assert "allowed" in result or "keep the plan short" in result, result
    assert (await hold.state(handle)).known_facts == ()
    assert await hold.memory.recall("e") == []


async def test_what_a_tool_found_is_shortened_and_kept(hold: Holdfast) -> None:
    @tool(risk="read_only")
    async def look() -> tuple[str, StatePatch]:
        """Look."""
        return "seen", StatePatch(append_facts=facts(["x" * 100_000]), add_questions=(LONG,), set_flags=("seen",))

    def observe(*_: object) -> StatePatch:
        return StatePatch(append_facts=(KnownFact(key="observed", value="y" * 100_000, source="o"),))

    agent, _ = register(hold, [call("look"), "done"], tools=[look], observe=observe)
    handle = await finished(hold, agent)
    state = await hold.state(handle)
    assert [fact.key for fact in state.known_facts] == ["k0", "observed"]
    assert all(len(canonical(fact.to_json())) <= FACT_BYTES for fact in state.known_facts)
    assert len(state.open_questions[0]) <= TEXT_BYTES
    assert state.risk_flags == ("seen",)


async def test_a_state_that_grew_too_large_before_can_still_be_used(either: Holdfast) -> None:
    """As older versions have stored it: facts, questions, a plan and flags that fill any context and any checkpoint."""
    handle, question = await begun(either, max_context_tokens=20_000)
    large = (
        *(StatePatch(append_facts=facts(f"{number}" + "x" * 3_000_000)) for number in range(4)),
        StatePatch(add_questions=(HUGE, *(f"{number} {LONG}" for number in range(50)))),
        StatePatch(replace_plan=(HUGE, *(f"{number} {LONG}" for number in range(50))), current_step=HUGE),
        *(StatePatch(set_flags=tuple(f"{number}.{part} {HUGE}" for part in range(4))) for number in range(5)),
        StatePatch(goal=HUGE),
    )
    for patch in large:
        operation = ApplyPatch(body=canonical(patch.to_json()), author="old")
        commit = Commit(task_id=handle.id, guard=Expect(), operations=(operation,), actor="old")
        [verdict] = await either.store.commit([commit])
        assert verdict.applied
    await either.answer(question.id, "here", by="ann")
    async with either.worker():
        assert await handle.result(timeout=PATIENCE) == "done"
    agent, _ = register(either, lambda _: "more", name="next")
    following = await finished(either, agent, "go on", after=handle)
    assert await following.result() == "more"


async def test_calls_with_arguments_that_fill_the_context(hold: Holdfast) -> None:
    """A model wrote them; it cannot take them back."""
    calls = [call("record_fact", key=f"k{number}", value=HUGE) for number in range(3)]
    agent, model = register(hold, [calls, [call("nothing", text=HUGE)], "done"], max_context_tokens=20_000)
    handle = await finished(hold, agent)
    assert await handle.result() == "done"
    [last] = [message for message in model.requests[1].messages if message.tool_calls]
    for made in last.tool_calls:
        assert made.arguments.startswith('{"key": "k')
        assert "left out" in made.arguments


async def test_many_facts_of_its_own(hold: Holdfast) -> None:
    each = 15_000
    count = FACTS_BYTES // each + 10
    calls = [call("record_fact", key=f"k{number}", value=f"{number} " + "x" * each) for number in range(count)]
    agent, _ = register(hold, [calls, "done"])
    handle = await finished(hold, agent)
    state = await hold.state(handle)
    assert len(state.known_facts) < count
    assert len(canonical(state.to_json())) < 2 * FACTS_BYTES


def test_one_long_fact_does_not_hide_the_others() -> None:
    known = (KnownFact(key="disk", value="/dev/sda1", source="df"), *facts("x" * 15_000))
    state = AgentState(goal="g", known_facts=known)
    shown = _describe(state, _choose(state, 8_000, None), ALWAYS_BYTES)
    assert "/dev/sda1" in shown
    assert "bytes left out" in shown
    assert len(shown) < 9_000
