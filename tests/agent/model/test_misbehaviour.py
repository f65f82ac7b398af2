"""OpenAIModel at an endpoint that misbehaves: nothing it sends ends a task at once, leads elsewhere or fills memory."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat

import httpx2
import openai
import pytest

from holdfast import Agent, Budget, Holdfast, Meter, ModelRefused, Retry
from holdfast.agent.model import ModelError
from holdfast.agent.openai_client import ERROR_BYTES
from holdfast.agent.openai_model import OpenAIModel
from holdfast.agent.openai_stream import Chunk
from tests.agent.model.support import PATIENT, ignore, user
from tests.raw_server import DONE, RawServer, chunk, event, head, raw_server, text

SLOW = b'{"error": {"message": "slow down"}}'
JSON = "application/json"
MANY = "9" * 400

WORTH_A_RETRY: dict[str, list[bytes]] = {
    "Retry-After of 400 digits": [head("429 No", JSON, retry_after=MANY), SLOW],
    "Retry-After of 5000 digits": [head("429 No", JSON, retry_after="9" * 5000), SLOW],
    "Retry-After-Ms of 400 digits": [head("429 No", JSON, retry_after_ms=MANY), SLOW],
    "Retry-After-Ms of 5000 digits": [head("429 No", JSON, retry_after_ms="9" * 5000), SLOW],
    "Retry-After below zero": [head("429 No", JSON, retry_after="-5"), SLOW],
    "Retry-After without an end": [head("503 No", JSON, retry_after="inf"), SLOW],
    "Retry-After in no zone": [head("429 No", JSON, retry_after="Thu, 01 Jan 2099 00:00:00 +99999999999"), SLOW],
    "an error of deep JSON": [head("503 Busy", JSON), b"[" * 50_000],
    "an error of deep JSON that ends": [head("503 Busy", JSON), b"[" * 20_000, b"]" * 20_000],
    "an error in no known charset": [head("500 No", f"{JSON}; charset=nope"), b"\xff\xfe"],
    "an error in rot13": [head("500 No", f"{JSON}; charset=rot13"), SLOW],
    "an error in a charset of bytes": [head("500 No", f"{JSON}; charset=zlib"), SLOW],
    "an error in an undefined charset": [head("500 No", f"{JSON}; charset=undefined"), SLOW],
    "an error whose end is lost": [head("503 No", JSON, content_length="9000"), b'{"error"'],
    "an error that is packed, and garbage": [head("503 No", JSON, content_encoding="gzip"), b"no gzip"],
    "a status beyond all": [head("999 What", JSON), SLOW],
    "a redirect in a circle": [head("302 Found", location="/v1/chat/completions")],
    "a redirect to no URL": [head("302 Found", location="http://[::1")],
    "a redirect to nowhere": [head("302 Found")],
    "no content": [head("204 No Content")],
    "a page": [head(kind="text/html"), b"<p>Bad gateway</p>"],
    "an error as a success": [head(kind=JSON), SLOW],
    "an event of deep JSON": [head(), event(b"[" * 100_000 + b"]" * 100_000), DONE],
    "an event of a deep error": [head(), event(b'{"error":' + b"[" * 900 + b"]" * 900 + b"}"), DONE],
    "an event of a deeper error": [head(), event(b'{"error":' + b"[" * 20_000 + b"]" * 20_000 + b"}"), DONE],
    "an event with a number of 5000 digits": [head(), event(b'{"usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}")],
    "packed, and garbage": [head(content_encoding="gzip"), b"no gzip at all"],
    "packed nine times": [head(content_encoding=", ".join(["gzip"] * 9)), b"x"],
    "chunks of no length": [head(transfer_encoding="chunked"), b"ZZ\r\n"],
    "no HTTP": [b"\x00\x01\x02 hello\r\n\r\n"],
    "nothing": [],
}


def model_at(server: RawServer) -> OpenAIModel:
    return OpenAIModel("small", base_url=f"{server.url}/v1", api_key="sk-1234567890")


def always(answer: Iterable[bytes]) -> Callable[[int], Iterable[bytes]]:
    return lambda _: answer


async def failure(*answer: bytes) -> ModelError:
    async with raw_server(always(answer)) as server:
        with pytest.raises(ModelError) as raised:
            await model_at(server).complete(user("Hi."), ignore)
    return raised.value


async def test_every_kind_of_nonsense_is_worth_a_retry() -> None:
    for name, answer in WORTH_A_RETRY.items():
        error = await failure(*answer)
        assert not isinstance(error, ModelRefused), name
        assert error.retry_after is None, name
        assert len(str(error)) < 1000, name


async def test_the_status_of_an_error_counts_whatever_becomes_of_the_rest() -> None:
    for name, answer in WORTH_A_RETRY.items():
        said = answer[0].split(b" ")[1] if answer else b""
        if said in {b"429", b"500", b"503"}:
            assert (await failure(*answer)).status == int(said), name


async def test_whatever_a_library_raises_over_an_answer_is_worth_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (ValueError, LookupError, OverflowError, RecursionError, httpx2.StreamError, openai.OpenAIError):

        def read(_: str, kind: type[Exception] = kind) -> Chunk:
            raise kind("unexpected")

        monkeypatch.setattr(Chunk, "read", read)
        error = await failure(*text("ok"))
        assert type(error) is ModelError
        assert "cannot be read" in str(error)


async def test_a_refusal_is_one_in_whatever_form() -> None:
    for body in (b"[1, 2]", b"", b"[" * 20_000, b'{"message": 3}'):
        assert isinstance(await failure(head("401 No", JSON), body), ModelRefused), body


async def test_what_the_endpoint_says_of_itself_does_not_matter() -> None:
    """A whole answer counts, whatever stands around it."""
    for more in (
        {"usage": {"prompt_tokens": -5, "completion_tokens": -5}},
        {"usage": {"prompt_tokens": 5.5}},
        {"usage": [1, 2]},
        {"usage": "much"},
        {"model": "m\0" * 100_000},
    ):
        answer = text("ok", **more)
        async with raw_server(always(answer)) as server:
            reply = await model_at(server).complete(user("Hi."), ignore)
        assert (reply.content, reply.usage) == ("ok", None), more


async def test_a_task_outlives_them() -> None:
    """With one attempt at the task: the model call's own retry has to take care of it."""
    hold = Holdfast("memory://")
    nonsense = [
        WORTH_A_RETRY["Retry-After of 400 digits"],
        WORTH_A_RETRY["an event of deep JSON"],
        WORTH_A_RETRY["a redirect to no URL"],
        [head(), *[chunk({"content": "x" * 1_000_000})] * 9],
    ]
    async with raw_server(lambda number: [*nonsense, text("done")][number - 1]) as server:
        agent = hold.register(
            Agent(
                "agent",
                model=model_at(server),
                builtins=False,
                retry=Retry(max_attempts=1),
                model_retry=Retry(max_attempts=6, initial=0.001, retry_on=(ModelError,)),
                budget=Budget(max_llm_tokens=10_000_000),
            )
        )
        async with hold, hold.worker():
            task = await hold.submit(agent, "go")
            assert await task.result(timeout=PATIENT) == "done"
            assert (await hold.budget(task)).lines[Meter.LLM_TOKENS].spent > 2_000_000  # what came of the long one
    assert len(server.requests) == len(nonsense) + 1


async def test_the_conversation_goes_nowhere_else() -> None:
    async with raw_server(lambda _: text("stolen")) as other:
        for status in ("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"):
            error = await failure(head(status, location=f"{other.url}/v1/chat/completions"))
            assert "redirects are not followed" in str(error)
            assert other.requests == []


# How much there may be


async def test_an_answer_is_asked_for_unpacked() -> None:
    async with raw_server(lambda _: text("ok")) as server:
        await model_at(server).complete(user("Hi."), ignore)
    [asked] = server.requests
    assert "accept-encoding: identity\r\n" in asked.lower()


async def test_an_endless_answer_is_left_in_time() -> None:
    """Also one that was small until it was unpacked."""
    piece = chunk({"content": "x" * 1_000_000})
    packed = gzip.compress(piece * 30, 9)
    assert len(packed) < 60_000

    def endless() -> Iterator[bytes]:
        return chain([head()], repeat(piece, 200))

    answers: list[Iterable[bytes]] = [
        endless(),
        [head(content_encoding="gzip"), packed],
        [head(content_encoding="gzip, gzip"), gzip.compress(packed)],
    ]
    for answer in answers:
        shown: list[str] = []
        async with raw_server(always(answer)) as server:
            with pytest.raises(ModelError, match="of more than 8 MiB"):
                await model_at(server).complete(user("Hi."), shown.append)
        assert 0 < sum(map(len, shown)) <= 8 << 20


async def test_an_error_is_read_no_further_than_it_is_shown() -> None:
    """Its status and its header count, however much comes after them."""
    endless = chain([head("429 No", retry_after="7")], repeat(b"x" * 100_000, 2_000))
    async with raw_server(lambda _: endless) as server:
        with pytest.raises(ModelError) as raised:
            await model_at(server).complete(user("Hi."), ignore)
        async with asyncio.timeout(PATIENT):
            await server.hung_up.wait()
    assert (raised.value.status, raised.value.retry_after) == (429, 7.0)
    packed = gzip.compress(b"y" * (ERROR_BYTES * 100), 9)
    error = await failure(head("429 No", content_encoding="gzip", retry_after="7"), packed)
    assert (error.status, error.retry_after) == (429, 7.0)
    assert "yyy" in str(error)
