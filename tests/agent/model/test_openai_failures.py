"""OpenAIModel when the endpoint fails: incomplete answers do not count; each failure says whether and when to retry."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
import openai
import pytest

from holdfast.agent.model import ModelError, ModelRefused, ModelUnreachable
from holdfast.agent.openai_errors import of_no_connection, of_status
from holdfast.agent.openai_model import OpenAIModel
from holdfast.agent.scripted import call
from holdfast.model.message import Reply
from holdfast.model.retry import RecordedError
from holdfast.testing.chat_server import Answer, ChatServer
from tests.agent.model.support import IMPATIENT, ignore, model_of, until, user
from tests.everyday import FULL
from tests.postgres_server import free_port

WITH_EVERYTHING = Answer(text="Hé, wait.", calls=(call("weather", town="Ulm"), call("now")))


async def fail(server: ChatServer, **settings: Any) -> ModelError:  # noqa: ANN401 - those of OpenAIModel
    with pytest.raises(ModelError) as raised:
        await model_of(server, **settings).complete(user("Hi."), ignore)
    return raised.value


# Statuses


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_passing_trouble_is_worth_another_try_and_the_client_makes_none(status: int) -> None:
    with ChatServer([Answer(status=status, text="later", retry_after="7")]) as server:
        error = await fail(server)
    assert not isinstance(error, ModelRefused)
    assert (error.status, error.retry_after) == (status, 7.0)
    assert "later" in str(error)
    assert len(server.requests) == 1  # tries are the engine's
    assert RecordedError.of(error).retry_after == 7.0


async def test_a_date_to_come_back_at_is_understood() -> None:
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    with ChatServer([Answer(status=503, retry_after=in_an_hour)]) as server:
        error = await fail(server)
    assert error.retry_after is not None
    assert 3000 < error.retry_after <= 3600


async def test_a_trouble_without_a_time_leaves_it_to_the_retry() -> None:
    with ChatServer([Answer(status=429)]) as server:
        assert (await fail(server)).retry_after is None


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (400, "change the request"),
        (401, "check OPENAI_API_KEY"),
        (403, "use a key that may use this model"),
        (404, "check the model's name"),
        (413, "compact the history"),
        (422, "change the request"),
        (418, "will not answer"),
    ],
)
async def test_a_refusal_says_why_and_what_to_do(status: int, remedy: str) -> None:
    with ChatServer([Answer(status=status, text="because of this", retry_after="5")]) as server:
        error = await fail(server)
    assert isinstance(error, ModelRefused)
    assert (error.status, error.retry_after) == (status, None)
    assert "because of this" in str(error)
    assert remedy in str(error)


async def test_a_spent_account_is_not_a_rate_limit() -> None:
    with ChatServer([Answer(status=429, text="You exceeded your quota", code="insufficient_quota")]) as server:
        error = await fail(server)
    assert isinstance(error, ModelRefused)
    assert "add credit" in str(error)


async def test_a_key_that_the_endpoint_repeats_is_not_recorded() -> None:
    with ChatServer([Answer(status=401, text="Incorrect key: sk-secret-key-1")]) as server:
        error = await fail(server, api_key="sk-secret-key-1")
    assert "Incorrect key: ***" in str(error)
    assert "sk-secret" not in str(error)


async def test_the_placeholder_for_a_missing_key_is_not_a_secret() -> None:
    with ChatServer([Answer(status=400, text="none of these tools is known")]) as server:
        assert "none of these tools is known" in str(await fail(server))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_the_finer_header_goes_first_and_nonsense_is_ignored(headers: dict[str, str], seconds: float | None) -> None:
    answered = httpx2.Response(429, headers=headers, request=httpx2.Request("POST", "http://127.0.0.1"))
    assert of_status(openai.RateLimitError("", response=answered, body=None)).retry_after == seconds


async def test_a_wrong_address_is_named() -> None:
    with ChatServer([]) as server:
        model = OpenAIModel("small", base_url=server.base_url.removesuffix("/v1"))
        with pytest.raises(ModelRefused, match="check the model's name, and that base_url"):
            await model.complete(user("Hi."), ignore)


async def test_an_endpoint_that_cannot_be_reached_is_named_with_what_to_do() -> None:
    port = free_port()
    with ChatServer([]) as server:
        speaks_http = server.base_url.replace("http:", "https:")
        for base_url, said in (
            (f"http://127.0.0.1:{port}/v1", "the connection was refused: nothing listens there; check that the server"),
            (f"http://ann:s3cret@127.0.0.1:{port}/v1?key=s3cret", "the connection was refused"),
            ("http://no-such-host.invalid/v1", "the name no-such-host.invalid cannot be resolved; check base_url="),
            (speaks_http, "SSL"),
        ):
            with pytest.raises(ModelUnreachable) as raised:
                await OpenAIModel("small", base_url=base_url).complete(user("Hi."), ignore)
            shown = base_url.replace("ann:s3cret@", "").partition("?")[0]
            assert str(raised.value).startswith(f"cannot reach {shown}: "), raised.value
            assert said in str(raised.value)
            assert "OPENAI_BASE_URL" in str(raised.value)
            assert not isinstance(raised.value, ModelRefused)
            assert "s3cret" not in str(raised.value)


def test_a_connect_timeout_is_reported_as_unreachable() -> None:
    slow = openai.APITimeoutError(httpx2.Request("POST", "http://10.0.0.1"))
    slow.__cause__ = httpx2.ConnectTimeout("")
    error = of_no_connection(slow, httpx2.URL("http://10.0.0.1/v1/"), within=10)
    assert str(error).startswith("cannot reach http://10.0.0.1/v1: no connection within 10 s; check that the server")


# Silence


@pytest.mark.parametrize("where", ["before_headers", "mid_stream"])
async def test_a_silent_endpoint_is_given_up(where: Literal["before_headers", "mid_stream"]) -> None:
    pieces: list[str] = []
    with ChatServer(lambda _: Answer(text="one two three four", hang=where)) as server:
        for seconds in IMPATIENT:
            with pytest.raises(ModelError, match=f"sent nothing for {seconds:g} s"):
                await model_of(server, idle_timeout=seconds).complete(user("Hi."), pieces.append)
            if server.requests and (pieces or where == "before_headers"):
                break
        assert bool(pieces) == (where == "mid_stream")
        await until(server, lambda log: log[-1].outcome == "hung_up")


async def test_an_endpoint_that_speaks_too_long_is_given_up() -> None:
    with ChatServer(lambda _: Answer(text="word " * 1000, pause=0.1)) as server:
        for seconds in IMPATIENT:
            assert f"did not finish within {seconds:g} s" in str(await fail(server, timeout=seconds))
            if server.requests:
                break
        await until(server, lambda log: log[-1].outcome == "hung_up")


async def test_slow_is_not_silent() -> None:
    """It takes longer than the limit for silence, in all, and is never silent for nearly so long."""
    for pause in (0.2, 2.0):  # the longer one where a busy machine was silent by itself
        with ChatServer([Answer(text="one two three four five", pause=pause, comments=True)]) as server:
            model = model_of(server, idle_timeout=8 * pause)  # of nine pauses
            with suppress(ModelError):
                assert (await model.complete(user("Count."), ignore)).content == "one two three four five"
                return
    pytest.fail("it was taken to be silent")


# Broken streams


def recorded(server: ChatServer) -> bytes:
    """Ask as the model does, and keep the body as it is."""
    connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc)
    body = {"model": "small", "stream": True, "stream_options": {"include_usage": True}, "messages": [{"content": ""}]}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.parametrize("framing", ["chunked", "until_close"])
async def test_no_cut_at_any_byte_makes_a_reply(framing: Literal["chunked", "until_close"]) -> None:
    """Where HTTP itself does not show that a body was cut, the last event alone does."""

    def answer(body: dict[str, Any]) -> Answer:
        at = body["messages"][0]["content"]
        return Answer(
            text=WITH_EVERYTHING.text,
            calls=WITH_EVERYTHING.calls,
            framing=framing,
            cut_at=int(at) if at else None,
        )

    with ChatServer(answer) as server:
        model = model_of(server)
        whole = recorded(server)
        assert whole.endswith(b"data: [DONE]\n\n")
        at_once = asyncio.Semaphore(8)

        async def ask(at: int) -> Reply | BaseException:
            async with at_once:
                return (await asyncio.gather(model.complete(user(str(at)), ignore), return_exceptions=True))[0]

        # An everyday run takes every eleventh byte, and all of the end, where a cut is the hardest to notice.
        places = [at for at in range(len(whole)) if FULL or at % 11 == 0 or at > len(whole) - 60]
        *cut, full = await asyncio.gather(*map(ask, [*places, len(whole)]))
    assert isinstance(full, Reply)
    assert (full.content, len(full.tool_calls), full.finish_reason) == (WITH_EVERYTHING.text, 2, "tool_calls")
    assert len(whole) > 1000
    assert [at for at, outcome in zip(places, cut, strict=True) if type(outcome) is not ModelError] == []
    _, *exchanges = server.requests
    assert sum(exchange.outcome == "broken" for exchange in exchanges) == len(places)  # each of them really was cut
    gc.collect()


async def test_a_reset_makes_no_reply() -> None:
    with ChatServer([Answer(text="one two three four", cut_at=300, reset=True)]) as server:
        await fail(server)
        assert server.requests[0].outcome == "broken"


async def test_an_end_without_a_finish_reason_makes_no_reply() -> None:
    """The last event came, and what belongs before it did not."""
    with ChatServer([Answer(text="one two three", finish_reason="")]) as server:
        error = await fail(server)
    assert "without a finish_reason" in str(error)
    assert server.completed == 1


async def test_an_event_that_is_not_a_chunk_makes_no_reply() -> None:
    with ChatServer([Answer(text="one two three", malformed=True)]) as server:
        error = await fail(server)
    assert "not a chat completion chunk" in str(error)
    assert '{"choices": [{"del' in str(error)
    assert not isinstance(error, ModelRefused)


async def test_an_error_in_the_middle_of_a_stream_makes_no_reply() -> None:
    with ChatServer([Answer(text="one two three", error_event="the GPU fell over")]) as server:
        error = await fail(server)
    assert "the GPU fell over" in str(error)
    assert not isinstance(error, ModelRefused)


async def test_a_stream_that_ends_in_error_makes_no_reply() -> None:
    with ChatServer([Answer(text="one two three", finish_reason="error")]) as server:
        assert "finish_reason 'error'" in str(await fail(server))


async def test_an_answer_that_is_not_a_stream_is_named() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p>!")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as page:
        port = page.sockets[0].getsockname()[1]
        with pytest.raises(ModelError, match=r"sent no event \(text/html\); check that base_url"):
            await OpenAIModel("small", base_url=f"http://127.0.0.1:{port}").complete(user("Hi."), ignore)


# Cancelling


@pytest.mark.parametrize("where", ["before_headers", "mid_stream"])
async def test_to_cancel_hangs_up(where: Literal["before_headers", "mid_stream"]) -> None:
    with ChatServer([Answer(text="one two three four", hang=where)]) as server:
        asked = asyncio.create_task(model_of(server).complete(user("Hi."), ignore))
        await until(server, lambda log: len(log) == 1)
        assert not asked.done()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await until(server, lambda log: log[0].outcome == "hung_up")
        assert server.completed == 0
    gc.collect()
