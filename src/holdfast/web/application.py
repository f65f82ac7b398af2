"""The application: every route in one place, and what lives as long as the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.model.task import HANDOVER
from holdfast.service.service import Service
from holdfast.web.answers import MCP, Answers, refuse
from holdfast.web.guard import RequestGuard, RouteAccess
from holdfast.web.health import Readiness, alive
from holdfast.web.names import HostNames
from holdfast.web.shutdown import Requests
from holdfast.web.tokens import Tokens

LARGEST_BODY: Final = 64 * 1024
"""Bytes of a request, for a route without a limit of its own. The MCP endpoint has one."""

_WELCOME: Final = """\
This is Holdfast, which keeps long-running AI agents alive.

/mcp      Model Context Protocol over streamable HTTP; needs a token: Authorization: Bearer ...
/healthz  whether this process lives
/readyz   whether its store answers
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRoute:
    """A route, and what it asks of a caller."""

    path: str
    endpoint: Callable[..., Any]
    """Takes a Request and returns a Response, unless it is an ``AsgiEndpoint``."""
    access: RouteAccess = RouteAccess.TOKEN
    largest_body: int | None = LARGEST_BODY


class AsgiEndpoint:
    """An ASGI application as the endpoint of a route, whatever it is made of: Starlette goes by the type."""

    def __init__(self, application: ASGIApp) -> None:
        """Wrap it."""
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""
        await self._application(scope, receive, send)


class Application:
    """What is served."""

    def __init__(
        self,
        pages: Sequence[GuardedRoute],
        *,
        tokens: Tokens,
        names: HostNames,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Put the guard in front of the pages. ``on_stop`` is called when the server is to stop."""
        routes = [Route(page.path, page.endpoint, max_body_size=page.largest_body) for page in pages]
        router = Router(routes, redirect_slashes=False, default=_not_found)
        access = {page.path: page.access for page in pages if page.access is not RouteAccess.TOKEN}
        self.requests = Requests(RequestGuard(router, tokens=tokens, names=names, access=access), on_stop=on_stop)
        self._outermost = Answers(self.requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._outermost(scope, receive, send)


@asynccontextmanager
async def application(
    service: Service,
    *,
    tokens: Tokens,
    names: HostNames,
    read_only: bool = False,
    claimable: Sequence[str] = (HANDOVER,),
) -> AsyncIterator[Application]:
    """Make the application of an open store, for as long as the block lasts.

    ``claimable`` are the tasks that agents outside may take.
    """
    from holdfast.mcp.server import McpServer  # noqa: PLC0415 - an extra of its own, and slow to load

    server = McpServer(service, read_only=read_only, claimable=claimable)
    async with server.http(tokens.callers) as mcp:
        yield Application(_pages(service, mcp), tokens=tokens, names=names, on_stop=server.end_subscriptions)


def _pages(service: Service, mcp: ASGIApp) -> list[GuardedRoute]:
    return [
        GuardedRoute(path="/", endpoint=_welcome, access=RouteAccess.KNOWN_HOST),
        GuardedRoute(path="/healthz", endpoint=alive, access=RouteAccess.OPEN),
        GuardedRoute(path="/readyz", endpoint=Readiness(service).ready, access=RouteAccess.OPEN),
        GuardedRoute(path=MCP, endpoint=AsgiEndpoint(mcp), largest_body=None),
    ]


async def _welcome(request: Request) -> PlainTextResponse:
    del request
    return PlainTextResponse(_WELCOME)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    del receive
    await refuse(scope, send, HTTPStatus.NOT_FOUND, "there is nothing at this path; / says what there is")
