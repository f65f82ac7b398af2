"""What becomes of the requests under way when the server stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from holdfast.web import shutdown
from holdfast.web.shutdown import Requests
from tests.engine.support import settle

START: Message = {"type": "http.response.start", "status": 200, "headers": []}


class Exchange:
    """A request to an application with given behaviour."""

    def __init__(self, requests: Requests, method: str) -> None:
        self.sent: list[Message] = []
        self._scope = {"type": "http", "method": method, "path": "/mcp"}
        self.task = asyncio.create_task(requests(self._scope, self._receive, self._send))

    async def _receive(self) -> Message:
        raise AssertionError

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None


class Served:
    """Begins an answer or not, and waits to be let go on."""

    def __init__(self, *, begins: bool) -> None:
        self._begins = begins
        self.began, self.go_on = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        if self._begins:
            await send(START)
        self.began.set()
        await self.go_on.wait()
        if self.error:
            raise self.error
        if not self._begins:
            await send(START)
        await send({"type": "http.response.body", "body": b"done"})


async def started(served: Any, method: str) -> tuple[Requests, Exchange]:  # noqa: ANN401
    requests = Requests(served)
    exchange = Exchange(requests, method)
    await served.began.wait()
    return requests, exchange


async def test_a_listener_gets_a_proper_end_at_once() -> None:
    requests, exchange = await started(Served(begins=True), "GET")
    requests.stop()
    await asyncio.wait_for(exchange.task, 60)
    assert exchange.sent == [START, {"type": "http.response.body", "body": b""}]


async def test_a_listener_without_an_answer_is_sent_away() -> None:
    requests, exchange = await started(Served(begins=False), "GET")
    requests.stop()
    await asyncio.wait_for(exchange.task, 60)
    assert exchange.status == 503


@pytest.mark.parametrize("begins", [True, False])
async def test_a_call_may_finish(begins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(begins=begins)
    requests, exchange = await started(served, "POST")
    monkeypatch.setattr(shutdown, "GRACE", 3600.0)
    requests.stop()
    answered = asyncio.create_task(requests.answered())
    await asyncio.sleep(0.05)
    assert not exchange.task.done()
    assert not answered.done()
    served.go_on.set()
    await asyncio.wait_for(answered, 60)
    await asyncio.wait_for(exchange.task, 60)
    assert exchange.sent == [START, {"type": "http.response.body", "body": b"done"}]


@pytest.mark.parametrize("begins", [True, False])
async def test_a_call_has_its_grace_and_no_more(begins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "GRACE", 0.01)
    monkeypatch.setattr(shutdown, "ERROR_SEND_TIMEOUT", 0.01)
    requests, exchange = await started(Served(begins=begins), "POST")
    requests.stop()
    await asyncio.wait_for(requests.answered(), 60)
    assert not exchange.task.done(), "until the end it may still finish"
    requests.end()
    await asyncio.wait_for(exchange.task, 60)
    if begins:
        assert exchange.sent == [START, {"type": "http.response.body", "body": b""}]
    else:
        assert exchange.status == 503


async def test_no_wait_without_a_holder() -> None:
    requests = Requests(Served(begins=True))
    requests.stop()
    await asyncio.wait_for(requests.answered(), 1)


async def test_a_waiter_can_be_cancelled_with_the_last_answer() -> None:
    requests = Requests(Served(begins=True))
    answered = asyncio.create_task(requests.answered())
    await settle()
    requests.stop()
    answered.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answered


async def test_nothing_begins_any_more() -> None:
    served = Served(begins=True)
    requests = Requests(served)
    requests.stop()
    exchange = Exchange(requests, "POST")
    await asyncio.wait_for(exchange.task, 60)
    assert exchange.status == 503
    assert not served.began.is_set()


async def test_a_slow_end_is_reported_once() -> None:
    tidied = asyncio.Event()

    class Tidy(Served):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await tidied.wait()

    requests, exchange = await started(Tidy(begins=True), "GET")
    requests.stop()
    await asyncio.sleep(0.01)
    requests.stop()
    requests.end()
    assert not exchange.task.done()
    tidied.set()
    await asyncio.wait_for(exchange.task, 60)
    assert exchange.sent == [START, {"type": "http.response.body", "body": b""}]


async def test_an_error_of_the_application_stays_its_own() -> None:
    served = Served(begins=True)
    requests, exchange = await started(served, "POST")
    served.error = TimeoutError("not ours")
    served.go_on.set()
    with pytest.raises(TimeoutError, match="not ours"):
        await asyncio.wait_for(exchange.task, 60)
    requests.stop()  # nothing is left to be ended
