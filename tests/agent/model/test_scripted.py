"""ScriptedModel: what comes next is in the conversation, not in the model."""

from __future__ import annotations

from dataclasses import replace
from traceback import extract_tb

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast import InvalidValue
from holdfast.agent.model import Model, ModelError, ModelRefused, Request
from holdfast.agent.script import Script
from holdfast.agent.scripted import ScriptedCall, ScriptedModel, call, estimate_usage
from holdfast.model.message import Message, Reply, ToolCall, Usage
from tests.agent.model.support import converse, ignore, user


def test_it_is_a_model() -> None:
    assert isinstance(ScriptedModel([]), Model)


async def test_each_kind_of_answer() -> None:
    said = Reply(content="as it is", model="other", finish_reason="length", usage=Usage(input_tokens=1))
    model = ScriptedModel(
        [
            call("read", path="a"),
            [call("read", path="b"), call("list")],
            ["Wait.", call("list")],
            lambda request: f"{len(request.messages)} messages",
            said,
            "done",
        ]
    )
    one, two, mixed, written, whole, done = await converse(model, 6)
    assert one.tool_calls == (ToolCall(id="call_0_0", name="read", arguments='{"path": "a"}'),)
    assert (one.content, one.finish_reason, one.model) == ("", "tool_calls", "scripted")
    assert [(made.id, made.name) for made in two.tool_calls] == [("call_1_0", "read"), ("call_1_1", "list")]
    assert (mixed.content, [made.name for made in mixed.tool_calls]) == ("Wait.", ["list"])
    assert written.content == "8 messages"
    assert whole == said
    assert (done.content, done.finish_reason) == ("done", "stop")
    assert len(model.requests) == 6


async def test_one_function_can_write_all_answers_and_take_its_time() -> None:
    async def answer(request: Request) -> str:
        return f"{request.messages[-1].content}!"

    model = ScriptedModel(answer)
    assert [reply.content for reply in await converse(model, 2, first="go")] == ["go!", "and then?!"]


@given(some.integers(0, 5), some.integers(0, 5))
async def test_another_process_goes_on_where_the_conversation_is(answered: int, retried: int) -> None:
    script = [f"answer {number}" for number in range(6)]
    messages = [Message(role="user", content="go")]
    messages += [Message(role="assistant", content=text) for text in script[:answered]]
    request = Request(messages=tuple(messages))
    for _ in range(retried + 1):
        assert (await ScriptedModel(script).complete(request, ignore)).content == f"answer {answered}"


async def test_the_turn_counts_where_messages_were_compacted_away() -> None:
    model = ScriptedModel(["first", "second", "third"])
    compacted = (Message(role="user", content="go"), Message(role="assistant", content="what was said, in short"))
    assert (await model.complete(Request(messages=compacted, turn=2), ignore)).content == "third"
    assert (await model.complete(Request(messages=compacted), ignore)).content == "second"


async def test_any_number_of_conversations_share_one_model() -> None:
    model = ScriptedModel(["first", "second"])
    for _ in range(2):
        assert [reply.content for reply in await converse(model, 2)] == ["first", "second"]


async def test_an_exception_is_raised_once_to_each_request() -> None:
    lost, busy = ModelError("lost"), ModelError("busy", retry_after=3)
    model = ScriptedModel(["hello", lost, busy, "done"])
    second = Request(messages=(*user("go").messages, Message(role="assistant", content="hello")), effect_id="a")
    depths = set()
    for request in (second, replace(second, effect_id="b"), replace(second, effect_id=None)):
        for expected in (lost, busy):
            with pytest.raises(ModelError) as raised:
                await model.complete(request, ignore)
            assert raised.value is expected
            depths.add(len(extract_tb(raised.tb)))
        for _ in range(2):  # and the answer after it to every later call
            assert (await model.complete(request, ignore)).content == "done"
    assert len(depths) == 1  # no traceback grows by those before it


async def test_a_script_that_is_over_raises_an_error() -> None:
    with pytest.raises(ModelRefused, match="has 1 answers, and this conversation has had 1"):
        await converse(ScriptedModel(["only"]), 2)
    with pytest.raises(ModelRefused, match="has 0 answers"):
        await converse(ScriptedModel([]), 1)
    model = ScriptedModel([ModelError("last")])
    with pytest.raises(ModelError, match="last"):
        await converse(model, 1)
    with pytest.raises(ModelRefused, match="has 0 answers"):
        await converse(model, 1)


@pytest.mark.parametrize("text", ["", "a", "four", "a longer sentence, with words"])
async def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    pieces: list[str] = []
    await ScriptedModel([text]).complete(user("go"), pieces.append)
    assert "".join(pieces) == text
    assert len(pieces) == min(len(text), 4)


async def test_usage_is_estimated_fixed_computed_or_unknown() -> None:
    request = user("one two three")
    estimated = (await ScriptedModel(["four"]).complete(request, ignore)).usage
    assert estimated == estimate_usage(request, Reply(content="four"))
    assert estimated is not None
    assert estimated.input_tokens > estimated.output_tokens > 0
    fixed = Usage(input_tokens=7, output_tokens=2)
    assert (await ScriptedModel(["four"], usage=fixed).complete(request, ignore)).usage == fixed
    counted = ScriptedModel(["four"], usage=lambda request, _: Usage(input_tokens=len(request.messages)))
    assert (await counted.complete(request, ignore)).usage == Usage(input_tokens=1)
    assert (await ScriptedModel(["four"], usage=None).complete(request, ignore)).usage is None


def test_calls_count_as_output() -> None:
    made = (ToolCall(id="c", name="weather", arguments='{"town": "Ulm"}'),)
    assert estimate_usage(user("go"), Reply(tool_calls=made)).output_tokens > 0


async def test_a_call_may_have_an_argument_called_name_and_arguments_that_are_not_json() -> None:
    model = ScriptedModel([call("greet", name="Ada"), ScriptedCall("greet", "Ada")])
    first, second = await converse(model, 2)
    assert first.tool_calls[0].arguments == '{"name": "Ada"}'
    assert second.tool_calls[0].arguments == "Ada"


async def test_what_is_not_a_script_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"write \['done'\]"):
        ScriptedModel("done")
    with pytest.raises(InvalidValue, match="is not an answer"):
        await converse(ScriptedModel([[1]]), 1)  # type: ignore[list-item]


@given(some.lists(some.booleans()))
def test_every_line_of_a_script_is_reached_in_order(failures: list[bool]) -> None:
    """The law: a caller that retries after failures, and goes on after answers, reads the script from top to bottom."""
    lines = list(enumerate(failures))
    script = Script(lines, lambda line: line[1])
    read, turn = [], 0
    while (line := script.line(turn, "me")) is not None:
        read.append(line)
        turn += not line[1]
    assert read == lines
    assert turn == script.answers == failures.count(False)
    assert script.line(turn + 1, "me") is None
