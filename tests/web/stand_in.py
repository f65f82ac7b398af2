"""The command, with a stand-in for the MCP endpoint: it tells who called, streams without end, dawdles and breaks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.cli import main
from holdfast.service.access import Caller
from holdfast.web import health


class StandIn:
    """As holdfast.mcp.server.McpServer is made and served."""

    def __init__(self, hold: Any, *, read_only: bool, claimable: Sequence[str]) -> None:  # noqa: ANN401
        del hold
        self._rights = {"read_only": read_only, "claimable": list(claimable)}
        self._closed = False

    def end_subscriptions(self) -> None:
        """There are none."""

    @asynccontextmanager
    async def http(self, callers: Iterable[str] = ()) -> AsyncIterator[ASGIApp]:  # noqa: ARG002 - as the server has it
        yield self._answer
        self._closed = True
        print("the endpoint is closed", file=sys.stderr)  # noqa: T201

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response: Response
        if (order := request.headers.get("x-do")) is not None:
            print(f"{order} begins", file=sys.stderr)  # noqa: T201
        match order:
            case "stream":
                response = StreamingResponse(_endless(), media_type="text/event-stream")
            case "dawdle":
                await asyncio.sleep(1)
                response = JSONResponse("closed too early" if self._closed else "done")
            case "hang":
                await asyncio.Event().wait()
                raise AssertionError
            case "break":
                raise RuntimeError("a defect")
            case _:
                caller: Caller = scope["holdfast.caller"]
                scopes = sorted(caller.scopes)
                response = JSONResponse({"name": caller.name, "scopes": scopes} | self._rights)
        await response(scope, receive, send)


async def _endless() -> AsyncIterator[str]:
    yield "data: first\n\n"
    await asyncio.Event().wait()


if __name__ == "__main__":
    module = ModuleType("holdfast.mcp.server")
    module.__dict__["McpServer"] = StandIn
    sys.modules[module.__name__] = module
    # A probe of a busy machine is not to find a store away that is well.
    health.PATIENCE = 10.0  # type: ignore[misc]
    main()
