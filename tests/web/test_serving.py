"""The server within this process: which signals it handles, and what it does when uvicorn ends by itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from holdfast.web.address import bound, resolve, url_of
from holdfast.web.application import Application, GuardedRoute
from holdfast.web.guard import RouteAccess
from holdfast.web.names import HostNames
from holdfast.web.server_process import Server
from holdfast.web.tokens import make_token
from tests.engine.support import settle


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"hello from {request.url.path}")


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, str]]:
    address = resolve("127.0.0.1", 0)
    pages = [GuardedRoute(path="/", endpoint=hello, access=RouteAccess.KNOWN_HOST)]
    application = Application(pages, tokens=make_token()[0], names=HostNames(address))
    with bound(address) as listener:
        url = url_of(listener)
        async with asyncio.timeout(60), Server(application, listener) as server:
            yield server, url


async def test_signals_stay_with_the_owner_of_the_process() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving() as (_, url), httpx2.AsyncClient(timeout=60) as client:
        assert (await client.get(url)).text == "hello from /"
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


async def test_it_runs_until_it_is_stopped() -> None:
    async with serving() as (server, _):
        stop = asyncio.Event()
        running = asyncio.create_task(server.run(stop))
        await asyncio.sleep(0.05)
        assert not running.done()
        stop.set()
        await running


async def test_it_does_not_wait_for_output_after_the_end_of_the_server() -> None:
    async with serving() as (server, _):
        server._uvicorn.should_exit = True
        await server.run(asyncio.Event())


async def test_nothing_is_left_of_a_run_that_was_cancelled() -> None:
    async with serving() as (server, _):
        before = asyncio.all_tasks()
        running = asyncio.create_task(server.run(asyncio.Event()))
        await settle()
        running.cancel()
        await asyncio.wait([running])
        await settle()
        assert asyncio.all_tasks() == before
