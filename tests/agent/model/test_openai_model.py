"""OpenAIModel against a real server, through the real client: what it sends, and what it makes of whole answers."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import InvalidValue, MissingExtra
from holdfast.agent.model import Model, ModelRefused, Request
from holdfast.agent.openai_model import OpenAIModel
from holdfast.agent.scripted import ScriptedCall, call
from holdfast.model.message import Message, Reply, ToolCall, Usage
from holdfast.testing.chat_server import Answer, ChatServer
from tests.agent.model.support import PATIENT, WEATHER, ignore, model_of, until, user


def test_it_is_a_model() -> None:
    assert isinstance(OpenAIModel("small"), Model)


async def test_a_text_comes_whole_and_in_pieces() -> None:
    pieces: list[str] = []
    with ChatServer(["It rains in Ulm."]) as server:
        reply = await model_of(server).complete(user("The weather?"), pieces.append)
    assert reply == Reply(
        content="It rains in Ulm.",
        usage=Usage(input_tokens=10, output_tokens=4),
        model="small",
        finish_reason="stop",
    )
    assert pieces == ["It", " rains", " in", " Ulm."]
    assert server.completed == 1


async def test_the_pieces_come_while_the_rest_is_still_being_written() -> None:
    first = asyncio.Event()
    with ChatServer([Answer(text="one two three four", hang="mid_stream")]) as server:
        asked = asyncio.create_task(model_of(server).complete(user("Count."), lambda _: first.set()))
        await first.wait()
        assert not asked.done()
        asked.cancel()
        await asyncio.wait([asked])


async def test_parallel_tool_calls_are_distinguished() -> None:
    calls = [call("weather", town="Ulm"), call("weather", town="Köln"), call("now")]
    with ChatServer([["I look.", *calls]]) as server:
        reply = await model_of(server).complete(user("The weather?", tools=(WEATHER,)), ignore)
    assert reply.content == "I look."
    assert reply.finish_reason == "tool_calls"
    assert [(made.name, json.loads(made.arguments)) for made in reply.tool_calls] == [
        ("weather", {"town": "Ulm"}),
        ("weather", {"town": "Köln"}),
        ("now", {}),
    ]
    assert [made.id for made in reply.tool_calls] == ["call_0_0", "call_0_1", "call_0_2"]


async def test_calls_without_ids_get_stable_ones_of_their_own() -> None:
    answer = Answer(calls=(call("weather", town="Ulm"), call("weather", town="Köln")), call_ids=False)
    with ChatServer(lambda _: answer) as server:
        model = model_of(server)
        first, again, other = [
            await model.complete(user("The weather?", effect_id=effect_id), ignore) for effect_id in ("a", "a", "b")
        ]
    assert first.tool_calls == again.tool_calls
    identifiers = {made.id for reply in (first, other) for made in reply.tool_calls}
    assert len(identifiers) == 4
    assert all(0 < len(identifier) <= 40 for identifier in identifiers)  # no endpoint takes longer ones


async def test_an_id_that_an_earlier_call_had_is_not_used_again() -> None:
    earlier = ToolCall(id="call_1_0", name="now", arguments="{}")
    messages = (
        Message(role="user", content="go"),
        Message(role="assistant", content="", tool_calls=(earlier,)),
        Message(role="tool", content="noon", tool_call_id="call_1_0"),
    )
    with ChatServer(lambda _: call("now")) as server:  # whose next call is call_1_0 again
        reply = await model_of(server).complete(Request(messages=messages), ignore)
    assert reply.tool_calls[0].id not in {"", "call_1_0"}


async def test_usage_that_the_endpoint_does_not_give_is_none() -> None:
    with ChatServer([Answer(text="Hi.", usage=False)]) as server:
        assert (await model_of(server).complete(user("Hi."), ignore)).usage is None


async def test_a_reply_that_ran_out_of_tokens_is_marked() -> None:
    with ChatServer([Answer(text="Once upon a", finish_reason="length")]) as server:
        assert (await model_of(server).complete(user("Tell."), ignore)).finish_reason == "length"


async def test_the_request_is_sent_as_the_protocol_has_it() -> None:
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content="The weather?"),
        Message(
            role="assistant", content="", tool_calls=(ToolCall(id="c1", name="weather", arguments='{"town":"Ulm"}'),)
        ),
        Message(role="tool", content="rain", tool_call_id="c1"),
    )
    request = Request(messages=messages, tools=(WEATHER,), max_output_tokens=50, effect_id="effect-1")
    with ChatServer(lambda _: "Rain.") as server:
        model = model_of(server, api_key="sk-secret-key", temperature=0.5, extra={"top_k": 3})
        await model.complete(request, ignore)
    (asked,) = server.requests
    assert asked.headers["idempotency-key"] == "effect-1"
    assert asked.headers["authorization"] == "Bearer sk-secret-key"
    assert asked.body == {
        "model": "small",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 50,
        "temperature": 0.5,
        "top_k": 3,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "The weather?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"town":"Ulm"}'}}
                ],
            },
            {"role": "tool", "content": "rain", "tool_call_id": "c1"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "The weather in a town.",
                    "parameters": WEATHER.parameters,
                },
            }
        ],
    }


async def test_text_that_utf8_has_no_bytes_for_can_be_sent() -> None:
    """A tool that reads a file of another encoding leaves such characters."""
    with ChatServer(["Fine."]) as server:
        await model_of(server).complete(user("caf\udce9 \ud83d\ude00"), ignore)
    assert server.requests[0].body["messages"][0]["content"] == "caf\ufffd \U0001f600"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{"town": "Ulm"}', '{"town": "Ulm"}'),
        ("", "{}"),
        ('{"town": "Ul', '{"not_an_object": "{\\"town\\": \\"Ul"}'),
        ("[1]", '{"not_an_object": "[1]"}'),
    ],
)
async def test_arguments_that_are_not_an_object_do_not_spoil_the_conversation(written: str, sent: str) -> None:
    with ChatServer([ScriptedCall("weather", written), "Sorry."]) as server:
        model = model_of(server)
        reply = await model.complete(user("The weather?"), ignore)
        assert reply.tool_calls[0].arguments == written
        await model.complete(Request(messages=(*user("The weather?").messages, reply.message)), ignore)
    message = server.requests[1].body["messages"][1]
    assert message["tool_calls"][0]["function"]["arguments"] == sent


@pytest.mark.parametrize(
    "refused", [{"stream_options"}, {"max_completion_tokens"}, {"stream_options", "max_completion_tokens"}]
)
async def test_a_parameter_the_endpoint_refuses_is_done_without_from_then_on(refused: set[str]) -> None:
    with ChatServer(lambda _: "Hi.", refuses=sorted(refused)) as server:
        model = model_of(server)
        for _ in range(2):
            assert (await model.complete(user("Hi.", max_output_tokens=9), ignore)).content == "Hi."
    *refusals, first, second = server.requests
    assert [exchange.outcome for exchange in refusals] == ["refused"] * len(refused)
    for exchange in (first, second):
        assert refused.isdisjoint(exchange.body)
        assert exchange.body["max_tokens" if "max_completion_tokens" in refused else "max_completion_tokens"] == 9


async def test_a_refusal_that_doing_without_does_not_help_is_forgotten() -> None:
    """It only named the parameter. An endpoint that knows no max_tokens could never be used again."""
    too_large = Answer(status=400, text="max_completion_tokens is too large")
    with ChatServer(lambda body: "Hi." if body.get("max_completion_tokens") == 9 else too_large) as server:
        model = model_of(server)
        with pytest.raises(ModelRefused, match="too large"):
            await model.complete(user("Hi.", max_output_tokens=1_000_000), ignore)
        assert len(server.requests) == 2
        assert (await model.complete(user("Hi.", max_output_tokens=9), ignore)).content == "Hi."


async def test_many_calls_at_once_on_one_model() -> None:
    def echo(body: dict[str, Any]) -> Answer:
        return Answer(text=f"you said {body['messages'][0]['content']}", pause=0.01)

    async def ask(model: OpenAIModel, text: str) -> None:
        pieces: list[str] = []
        reply = await model.complete(user(text), pieces.append)
        assert reply.content == "".join(pieces) == f"you said {text}"

    with ChatServer(echo) as server:
        model = model_of(server)
        await asyncio.gather(*(ask(model, f"n{number}") for number in range(30)))
    assert server.completed == 30


def test_one_model_in_several_event_loops_one_after_the_other_and_at_once() -> None:
    with ChatServer(lambda _: Answer(text="one two", pause=0.01)) as server:
        model = model_of(server)

        def run(_: int) -> str:
            return asyncio.run(model.complete(user("Hi."), ignore)).content

        assert run(0) == "one two"
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(run, range(8))) == ["one two"] * 8
    gc.collect()  # an open connection would warn now


async def test_closed_it_opens_again() -> None:
    with ChatServer(lambda _: "Hi.") as server:
        model = model_of(server)
        await model.aclose()
        for _ in range(2):
            assert (await model.complete(user("Hi."), ignore)).content == "Hi."
            await model.aclose()
            await model.aclose()


async def test_no_connection_outlives_its_call() -> None:
    """Also not one that the endpoint would keep, after an answer that was read to its end."""
    closed = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nno")
        await reader.read()  # until the client closes
        closed.set()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1") as endpoint:
        model = OpenAIModel("small", base_url=f"http://127.0.0.1:{endpoint.sockets[0].getsockname()[1]}")
        with pytest.raises(ModelRefused, match="answered 400: no"):
            await model.complete(user("Hi."), ignore)
        async with asyncio.timeout(PATIENT):
            await closed.wait()


async def test_key_and_address_come_from_the_environment_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer(lambda _: "Hi.") as server:
        model = OpenAIModel("small")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        await model.complete(user("Hi."), ignore)
        assert server.requests[0].headers["authorization"] == "Bearer sk-from-environment"


async def test_an_endpoint_of_ones_own_needs_no_key() -> None:
    with ChatServer(["Hi."]) as server:
        assert (await model_of(server).complete(user("Hi."), ignore)).content == "Hi."


async def test_without_a_key_it_says_what_to_set() -> None:
    with pytest.raises(ModelRefused, match="set OPENAI_API_KEY"):
        await OpenAIModel("small").complete(user("Hi."), ignore)


async def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    model = OpenAIModel("small", api_key="sk-x")  # to define an agent takes no extra
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[openai\]'"):
        await model.complete(user("Hi."), ignore)


def test_to_import_it_loads_no_client() -> None:
    code = "import sys, holdfast.agent.openai_model; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"openai", "httpx2", "pydantic"}.isdisjoint(loaded)


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"idle_timeout": -1}, {"idle_timeout": float("inf")}])
def test_times_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="timeout is"):
        OpenAIModel("small", **settings)  # type: ignore[arg-type]


def test_its_name_is_shown_and_its_key_is_not() -> None:
    model = OpenAIModel("small", api_key="sk-secret-key")
    assert repr(model) == "OpenAIModel('small')"
    with pytest.raises(InvalidValue, match="the model's name is empty"):
        OpenAIModel("")


async def test_what_the_listener_raises_is_raised_and_closes_the_connection() -> None:
    def refuse(_: str) -> None:
        raise TimeoutError("not ours")

    with ChatServer([Answer(text="one two three four", hang="mid_stream")]) as server:
        with pytest.raises(TimeoutError, match="not ours"):
            await model_of(server).complete(user("Count."), refuse)
        await until(server, lambda log: log[0].outcome == "hung_up")
