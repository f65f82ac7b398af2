"""Answers that were cut or filtered: their text is an answer, the calls they ask for are not made."""

from __future__ import annotations

import pytest

from holdfast import Agent, Holdfast, ModelRefused, Reply, ScriptedModel, TaskFailed, ToolCall, tool
from holdfast.agent import tool_calls
from holdfast.agent.finish_reason import ended_well, was_cut
from holdfast.agent.scripted import Line
from tests.agent.support import PATIENCE, finished, register, tool_results

CUT = ("length", "content_filter", "LENGTH", "MAX_TOKENS", "max-tokens", "SAFETY", "refusal", "network_error")
ENDED = ("stop", "tool_calls", "function_call", "STOP", "end_turn")


def reply(finish_reason: str, *calls: tuple[str, str]) -> Reply:
    made = [ToolCall(id=f"c{at}", name=name, arguments=arguments) for at, (name, arguments) in enumerate(calls)]
    return Reply(tool_calls=tuple(made), finish_reason=finish_reason)


async def test_a_call_is_made_only_if_its_answer_shows_that_it_is_whole(hold: Holdfast) -> None:
    """With a finish reason of the endpoint's own, a call needs whole arguments; one without any is not made."""
    wiped: list[tuple[str, int]] = []

    @tool
    def wipe(service: str = "*", days: int = 0) -> str:
        """Wipe."""
        wiped.append((service, days))
        return "wiped"

    whole, default = ("wipe", '{"service": "a", "days": 7}'), ("wipe", " ")
    table = [
        *((reason, calls, []) for reason in CUT for calls in ([whole], [default], [whole, default])),
        *((reason, [whole, default], [("a", 7), ("*", 0)]) for reason in ENDED),
        ("a word of its own", [whole, default], [("a", 7)]),
        ("", [default], []),
    ]
    for number, (reason, calls, expected) in enumerate(table):
        wiped.clear()
        agent, model = register(hold, [reply(reason, *calls), "done"], tools=[wipe], name=f"agent{number}")
        handle = await finished(hold, agent)
        assert sorted(wiped) == sorted(expected), reason
        refused = [text for text in tool_results(model) if text != "wiped"]
        assert len(refused) == len(calls) - len(expected), reason
        assert all("not made" in text or "none of its calls was made" in text for text in refused), reason
        assert len(await hold.store.effects(task_id=handle.id)) == len(expected), "what is not made is not armed"


async def test_a_person_is_not_asked_and_nothing_is_begun_for_a_cut_answer(hold: Holdfast) -> None:
    helping = ScriptedModel(["helped"])
    helper = Agent("helper", model=helping, description="Helps.", builtins=False)

    @tool
    def wipe(service: str) -> str:
        """Wipe."""
        return f"wiped {service}"

    calls = [
        ("wipe", '{"service": "a"}'),
        ("helper", '{"request": "help"}'),
        ("ask_question", '{"question": "May I?"}'),
        ("nope", "{}"),
    ]
    agent, model = register(
        hold, [reply("length", *calls), "done"], tools=[wipe, helper], approve=["external_action"], builtins=True
    )
    handle = await finished(hold, agent)
    assert await hold.store.approvals(task_id=handle.id) == []
    assert helping.requests == []
    assert len(tool_results(model)) == len(calls)
    assert all("was cut off (finish_reason 'length')" in text for text in tool_results(model))


async def test_what_an_older_version_made_of_a_cut_answer_stands(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal knows that the call was made: it is neither made again nor called unmade."""
    wiped: list[str] = []

    @tool
    def wipe(service: str = "*") -> str:
        """Wipe."""
        wiped.append(service)
        return "wiped"

    script: list[Line] = [reply("length", ("wipe", "")), ModelRefused("no credit"), "done"]
    agent, model = register(hold, script, tools=[wipe])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with monkeypatch.context() as older:
            older.setattr(tool_calls, "why_not_made", lambda _call, _reason: None)
            with pytest.raises(TaskFailed, match="no credit"):
                await handle.result(timeout=PATIENCE)
        await hold.resume(handle)
        assert await handle.result(timeout=PATIENCE) == "done"
    assert wiped == ["*"]
    assert tool_results(model) == ["wiped"]


async def test_there_is_an_end_to_cut_answers(hold: Holdfast) -> None:
    agent, model = register(hold, lambda _: reply("length", ("look", "{}")), max_senseless_answers=2)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match="AgentStuck"):
            await handle.result(timeout=PATIENCE)
    assert len(model.requests) == 3


async def test_the_text_of_a_cut_answer_is_an_answer(hold: Holdfast) -> None:
    agent, _ = register(hold, [Reply(content="as far as it", finish_reason="length")])
    assert await (await finished(hold, agent)).result() == "as far as it"


def test_no_word_means_both() -> None:
    for reason in (*CUT, *ENDED, "", "error", "whatever"):
        assert not (was_cut(reason) and ended_well(reason))
        assert was_cut(reason) == (reason in CUT or reason == "error")
        assert ended_well(reason) == (reason in ENDED)
