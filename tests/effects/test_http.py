"""http_request against a real server: what each answer, and each missing answer, proves."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
import tracemalloc
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast import Context, Holdfast, InvalidValue, MissingExtra, Retry
from holdfast.effects import (
    REFUSALS,
    HttpResponse,
    Impossible,
    NotReached,
    Probed,
    RequestRefused,
    UnclearResponse,
    http_request,
)
from holdfast.effects.http import read_retry_after
from holdfast.model.codec import round_trip
from holdfast.model.doubt import Absent, Happened, Outcome, Unknown
from holdfast.model.errors import NotHappened
from holdfast.model.retry import RecordedError
from tests.effects.shop import KEY, Shop
from tests.postgres_server import free_port
from tests.raw_server import head, raw_server

ID = "0f8b7c9e-1111-5222-8333-444455556666"
PATIENT = 60.0
"""Seconds: a limit that only a failing test reaches."""


async def reconcile(tool: Probed[..., Any], *args: object) -> Outcome:
    assert tool.reconcile is not None
    return await cast("Awaitable[Outcome]", tool.reconcile(ID, *args))


async def test_the_request_carries_the_effect_id_and_the_answer_is_plain_data(shop: Shop) -> None:
    charge = http_request("POST", f"{shop.url}/charge", headers={"Authorization": "secret", KEY.lower(): "no"})
    answer = await charge({"b": 1, "a": [2]}, effect_id=ID)
    ((method, path, headers, body),) = shop.requests
    assert (method, path, headers["Authorization"]) == ("POST", "/charge", "secret")
    assert [value for name, value in headers.items() if name.lower() == KEY.lower()] == [ID]
    assert body == b'{"a":[2],"b":1}'
    assert (answer.status, answer.body, answer.truncated) == (201, {"id": f"charge-{ID}"}, False)
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-type"] == "application/json"
    assert round_trip(answer, HttpResponse)[1] == answer
    assert shop.charges == {ID: 1}


async def test_an_id_that_the_caller_chose_is_part_of_the_address(shop: Shop) -> None:
    put = http_request("POST", shop.url + "/charge/json?{effect_id}")
    await put(effect_id="a/b c")
    assert shop.requests[0][1] == "/charge/json?a%2Fb%20c"


async def test_a_request_that_is_not_data_is_refused_before_it_is_sent(shop: Shop) -> None:
    with pytest.raises(Impossible):
        await http_request("POST", f"{shop.url}/charge")({"when": datetime.now(UTC)}, effect_id=ID)
    with pytest.raises(Impossible):
        await http_request("POST", "http://127.0.0.1:port/")(effect_id=ID)
    assert not shop.requests


# Proof that nothing happened


async def test_a_refused_connection_is_proof() -> None:
    with pytest.raises(NotReached):
        await http_request("POST", f"http://127.0.0.1:{free_port()}/charge")({}, effect_id=ID)


async def test_a_host_that_does_not_exist_is_proof() -> None:
    with pytest.raises(NotReached):
        await http_request("POST", "http://no-such-host.invalid/charge")({}, effect_id=ID)


async def test_a_connection_that_never_comes_about_is_proof() -> None:
    """TLS with a silent server: the socket is connected, and no byte of the request is sent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(NotReached):
            await http_request("POST", f"https://127.0.0.1:{port}/charge", timeout=4)({}, effect_id=ID)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 415, 422, 429, 451])
async def test_a_refusal_is_proof(shop: Shop, status: int) -> None:
    with pytest.raises(RequestRefused) as caught:
        await http_request("POST", f"{shop.url}/not-charged/status/{status}")({}, effect_id=ID)
    assert isinstance(caught.value, NotHappened)
    assert (caught.value.status, json.loads(caught.value.body)) == (status, {"answered": status})
    assert caught.value.retry_after is None
    assert str(status) in str(caught.value)


@pytest.mark.parametrize("status", [429, 422])
async def test_a_refusal_says_when_to_come_back(shop: Shop, status: int) -> None:
    with pytest.raises(RequestRefused) as caught:
        await http_request("POST", f"{shop.url}/not-charged/status/{status}?Retry-After=17")({}, effect_id=ID)
    assert RecordedError.of(caught.value).retry_after == 17


async def test_a_refusal_is_proof_even_if_its_end_is_lost(shop: Shop) -> None:
    with pytest.raises(RequestRefused, match="only the beginning"):
        await http_request("POST", f"{shop.url}/not-charged/half/422")({}, effect_id=ID)


# In doubt


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 408, 409, 425, 500, 502, 503, 504])
async def test_any_other_status_proves_nothing(shop: Shop, status: int) -> None:
    where = f"{shop.url}/charge/status/{status}?Retry-After=5&Location={shop.url}/charge"
    with pytest.raises(UnclearResponse) as caught:
        await http_request("POST", where)({}, effect_id=ID)
    assert not isinstance(caught.value, NotHappened)
    assert caught.value.status == status
    assert shop.charges == {ID: 1}, "redirects are not followed"


async def test_a_user_who_knows_the_server_better_may_declare_it(shop: Shop) -> None:
    where = f"{shop.url}/not-charged/status/503?Retry-After=5"
    with pytest.raises(RequestRefused) as caught:
        await http_request("POST", where, refusals=REFUSALS | {503})({}, effect_id=ID)
    assert caught.value.retry_after == 5


@pytest.mark.parametrize("how", ["reset", "half/201", "hang", "drip"])
async def test_a_lost_answer_is_not_a_proof(shop: Shop, how: str) -> None:
    tool = http_request("POST", f"{shop.url}/charge/{how}", timeout=PATIENT if how in {"reset", "half/201"} else 3)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any but one
        await tool({}, effect_id=ID)
    assert not isinstance(caught.value, NotHappened)
    assert shop.charges == {ID: 1}


async def test_a_hanging_server_is_left_when_the_task_is(shop: Shop) -> None:
    sending = asyncio.create_task(http_request("POST", f"{shop.url}/charge/hang", timeout=PATIENT)({}, effect_id=ID))
    await asyncio.to_thread(shop.charged.wait)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


# What is kept of an answer


async def test_a_long_answer_is_cut_and_still_means_that_it_was_done(shop: Shop) -> None:
    answer = await http_request("POST", f"{shop.url}/charge/huge/3000000", max_bytes=1000)({}, effect_id=ID)
    assert (answer.body, answer.truncated) == ("x" * 1000, True)


async def test_a_small_answer_cannot_grow() -> None:
    """Uncompressed is asked for. If a server compresses it all the same, only what is kept is read, and in pieces."""
    packed = gzip.compress(b"x" * 50_000_000, 9)
    for coding, sent in (("gzip", packed), ("gzip, gzip", gzip.compress(packed))):
        body = [head("201 Created", "text/plain", content_encoding=coding), sent]
        async with raw_server(lambda _, body=body: body) as server:  # type: ignore[misc]
            send = http_request("POST", f"{server.url}/", max_bytes=1000)
            tracemalloc.start()
            try:
                answer = await send({}, effect_id=ID)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert (answer.status, answer.body, answer.truncated) == (201, "x" * 1000, True)
        assert peak < 20_000_000
        [asked] = server.requests
        assert "accept-encoding: identity\r\n" in asked.lower()


async def test_a_refusal_whose_retry_after_makes_no_sense_is_recorded_like_any_other() -> None:
    """It is proof that nothing was done, and leaves no doubt; the next try is made when the policy says so."""
    for nonsense in ("9" * 400, "9" * 5000, "-1", "inf", "Thu, 01 Jan 2099 00:00:00 +99999999999"):
        answers = [[head("429 No", retry_after=nonsense), b"slow"], [head("201 Created"), b"done"]]
        async with raw_server(lambda number, answers=answers: answers[number - 1]) as server:  # type: ignore[misc]
            hold = Holdfast("memory://")
            pay = http_request("POST", f"{server.url}/pay")

            @hold.task
            async def buy(ctx: Context, pay: Probed[..., Any] = pay) -> int:
                answer = await ctx.step("pay", pay, {"a": 1}, retry=Retry(max_attempts=2, initial=0.001))
                return int(answer.status)

            async with hold, hold.worker():
                task = await hold.submit(buy)
                assert await task.result(timeout=PATIENT) == 201, nonsense
                assert await hold.doubts() == []
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "body", ["NaN", '{"a":1,"a":2}', "[" * 500 + "]" * 500, "1e999", "no json", ""], ids=lambda body: body[:9] or "-"
)
async def test_an_answer_that_could_not_be_stored_as_data_is_kept_as_text(shop: Shop, body: str) -> None:
    answer = await http_request("POST", f"{shop.url}/charge/json?{quote(body)}")({}, effect_id=ID)
    assert answer.body == body
    assert round_trip(answer, HttpResponse)[1] == answer


@pytest.mark.parametrize("charset", ["utf-8", "no-such-charset"])
async def test_text_is_kept_whatever_the_server_calls_it(shop: Shop, charset: str) -> None:
    answer = await http_request("POST", f"{shop.url}/charge/text/{charset}")(effect_id=ID)
    assert answer.body == "\u00fcber"


# Finding out


async def test_a_lookup_tells_whether_it_happened(shop: Shop) -> None:
    tool = http_request("POST", f"{shop.url}/charge/reset", lookup=shop.url + "/charges/{effect_id}")
    assert await reconcile(tool, {}) == Absent()
    with pytest.raises(Exception):  # noqa: B017, PT011 - its kind is another test's subject
        await tool({}, effect_id=ID)
    outcome = await reconcile(tool, {})
    assert isinstance(outcome, Happened)
    assert outcome.result.body == {"id": f"charge-{ID}"}
    assert shop.charges == {ID: 1}


async def test_a_search_is_read_as_its_author_says(shop: Shop) -> None:
    def read(answer: HttpResponse) -> Outcome:
        return Happened(answer) if answer.body["data"] else Absent()

    tool = http_request("POST", f"{shop.url}/charge", lookup=shop.url + "/search?key={effect_id}", read_lookup=read)
    assert await reconcile(tool) == Absent()
    await tool(effect_id=ID)
    assert isinstance(await reconcile(tool), Happened)


@pytest.mark.parametrize("status", [201, 204, 301, 400, 401, 403, 410])
async def test_a_lookup_that_answers_anything_else_tells_nothing(shop: Shop, status: int) -> None:
    outcome = await reconcile(http_request("POST", f"{shop.url}/charge", lookup=f"{shop.url}/status/{status}"))
    assert isinstance(outcome, Unknown)
    assert f"answered {status}" in outcome.why


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_raised_so_that_the_question_is_asked_again(shop: Shop, status: int) -> None:
    looking = http_request("POST", f"{shop.url}/charge", lookup=f"{shop.url}/status/{status}")
    repeating = http_request("POST", f"{shop.url}/not-charged/status/{status}", replayable=True)
    for tool in (looking, repeating):
        with pytest.raises(UnclearResponse):
            await reconcile(tool)


async def test_so_is_a_server_that_cannot_be_reached() -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    for tool in (http_request("POST", url, lookup=url), http_request("POST", url, replayable=True)):
        with pytest.raises(NotReached):
            await reconcile(tool)


async def test_a_server_that_does_each_key_once_is_simply_asked_again(shop: Shop) -> None:
    tool = http_request("POST", f"{shop.url}/replayable", replayable=True)
    await tool({"amount": 5}, effect_id=ID)
    outcome = await reconcile(tool, {"amount": 5})
    assert isinstance(outcome, Happened)
    assert outcome.result.body == {"id": f"charge-{ID}"}
    assert shop.charges == {ID: 1}
    first, second = shop.requests
    assert first == second


@pytest.mark.parametrize("status", [303, 401, 403, 404, 422])
async def test_a_repetition_that_is_refused_says_nothing_about_the_first(shop: Shop, status: int) -> None:
    """A token that has expired since is refused before the key is looked at."""
    outcome = await reconcile(http_request("POST", f"{shop.url}/not-charged/status/{status}", replayable=True))
    assert isinstance(outcome, Unknown)
    assert f"answered {status}" in outcome.why


async def test_of_both_the_lookup_is_asked(shop: Shop) -> None:
    tool = http_request("POST", f"{shop.url}/replayable", lookup=shop.url + "/charges/{effect_id}", replayable=True)
    assert await reconcile(tool) == Absent()
    assert not shop.charges


async def test_without_either_no_one_can_be_asked(shop: Shop) -> None:
    assert http_request("POST", shop.url).reconcile is None


# Refused arguments


@pytest.mark.parametrize(
    "wrong", [{"url": "ftp://x/"}, {"lookup": "/charges"}, {"max_bytes": 0}, {"max_bytes": 1 << 30}, {"timeout": 0}]
)
def test_what_cannot_work_is_refused_when_the_tool_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        http_request("POST", **({"url": "http://x/"} | wrong))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(MissingExtra, match=r"holdfast\[http\]"):
        http_request("POST", "http://x/")


NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("Tue, 01 Jan 2030 00:01:00 GMT", 60),
        ("Mon, 31 Dec 2029 00:00:00 GMT", 0),
        ("Tue, 01 Jan 2030 00:01:00 -0000", None),
        ("-5", None),
        ("soon", None),
        ("\u0665", None),
        ("", None),
        ("1.5", 1.5),
        ("1e3", None),
        ("inf", None),
        ("9" * 9, None),
        ("9" * 400, None),
        ("9" * 5000, None),
        ("0" * 400, None),
        ("Thu, 01 Jan 2099 00:00:00 +99999999999", None),
        ("Thu, 01 Jan 2099 00:00:00 +" + "9" * 30, None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert read_retry_after(value, NOW) == seconds


@given(some.text())
def test_no_retry_after_breaks_the_reading(value: str) -> None:
    asked = read_retry_after(value, NOW)
    assert asked is None or asked >= 0
