"""Connection: one session with a server, opened, kept and closed by one task of its own.

The task that enters a session of the SDK has to leave it, but calls come from any task of the same loop. At the end
of the loop that task is cancelled with all others, and closes what it opened: nothing stays running.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import Context
from errno import EACCES, EISDIR, ENOENT, ENOEXEC, ENOTDIR, EPERM
from typing import Any

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    Tool,
)
from pydantic import TypeAdapter

from holdfast._version import __version__
from holdfast.mcp.client.answers import CallAnswer, read_answer
from holdfast.mcp.client.catalogue import Listed, Listing
from holdfast.mcp.client.declarations import ToolHints
from holdfast.mcp.client.dispatch import CURRENT, Sending
from holdfast.mcp.client.error_meaning import meaning_of
from holdfast.mcp.client.errors import AnswerUnclear, CannotStart, ServerAway
from holdfast.mcp.client.health import Health
from holdfast.mcp.client.servers import Command, Server
from holdfast.mcp.client.transports import transport_to
from holdfast.model.errors import InvalidValue
from holdfast.model.failure import storable
from holdfast.model.task import JsonValue
from holdfast.redaction import cause_of, guard_libraries, make_logger, redacted_data

MOST_TOOLS = 1_000
"""A model could not choose from more."""

CALL = "tools/call"
_FIRST_REFUSAL = 300
_FIRST_SERVER_ERROR = 500
_log = make_logger(__name__)
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


class ServerConnection:
    """One session. It is used until it breaks or is retired, and not again."""

    def __init__(self, server: Server, *, within: float, on_end: Callable[[ServerConnection], None]) -> None:
        """Begin to open it. ``within`` are the seconds that this, and listing its tools, may take.

        ``on_end`` is called when it is over, however it ended.
        """
        guard_libraries()  # the SDK is loaded by now, and logs where it sends requests
        self._server = server
        self._within = within
        self._on_end = on_end
        self._retired = False
        self._busy = 0
        self._health = Health()
        self._is_doubted = False
        """A call ended without an answer, and none came since: the server may hang."""
        self._probe: asyncio.Task[bool] | None = None
        self._client: Client
        self.listing: Listing
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = loop.create_future()
        # In a context of its own: it outlives the caller that needed it first.
        self._owner = loop.create_task(self._own(), context=Context())
        self._owner.add_done_callback(self._ended)

    # Opening and closing

    async def opened(self) -> None:
        """Return once its tools are listed. Raises ServerAway."""
        await asyncio.shield(self._opened)

    @property
    def is_open(self) -> bool:
        """Whether calls can be tried on it."""
        return self._opened.done() and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether no call will be tried on it any more."""
        return self._retired or self._owner.done() or self._health.ended.is_set()

    def retire(self) -> None:
        """Take no more calls, and close once the last one under way is over."""
        self._retired = True
        if not self._busy:
            self._end()

    async def close(self) -> None:
        """Close it now; calls under way are lost."""
        self._retired = True
        self._end()
        await asyncio.wait([self._owner])

    def _end(self) -> None:
        # Only once: a second cancel would interrupt the first while it ends the server, and leave its process running.
        if not self._owner.cancelling():
            self._owner.cancel()

    async def _own(self) -> None:
        sending = Sending()
        CURRENT.set(sending)
        # Not asyncio.timeout: ending a silent server takes some seconds more, which the tool's timeout does not have.
        limit = asyncio.get_running_loop().call_later(self._within, self._give_up, sending)
        try:
            async with AsyncExitStack() as stack:
                self._client = await stack.enter_async_context(self._new_client())
                self.listing = await self._list()
                limit.cancel()
                self._opened.set_result(None)
                await self._health.ended.wait()  # or until it is cancelled
                _log.info("the MCP server %s has ended the connection", self._server.label)
        except Exception as error:  # noqa: BLE001 - the SDK raises groups of whatever its tasks raised
            if self._opened.done():
                _log.info("the connection to the MCP server %s broke: %r", self._server.label, error)
            else:
                self._opened.set_exception(self._away(error, sending))
        finally:
            limit.cancel()

    def _give_up(self, sending: Sending) -> None:
        if not self._opened.done():
            self._opened.set_exception(self._away(TimeoutError(), sending))
        self._retired = True
        self._end()

    def _ended(self, owner: asyncio.Task[None]) -> None:
        # Not at the end of _own: a task that is cancelled before its first step never comes there.
        del owner
        if not self._opened.done():
            words = f"the MCP server {self._server.label} cannot be reached: its connection was closed meanwhile"
            self._opened.set_exception(ServerAway(words))
        self._opened.exception()  # if no caller waits any more, asyncio would log an exception that was never read
        self._on_end(self)

    def _new_client(self) -> Client:
        return Client(
            transport_to(self._server, connect=self._within, health=self._health),
            mode="auto",
            client_info=Implementation(name="holdfast", version=__version__),
            cache=None,
        )

    def _away(self, error: BaseException, sending: Sending) -> Exception:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, InvalidValue):
            return error
        if isinstance(self._server, Command) and _is_missing_program(error):
            return CannotStart(f"the MCP server {self._server.label} cannot be started: {error}; fix its command")
        if isinstance(error, TimeoutError):
            said = f"it did not answer within {self._within:g} s"
        elif isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and isinstance(self._server, Command):
            said = "it ended; its own messages are on stderr"
        else:
            said = sending.trouble or str(error) or type(error).__name__
        outcome = "cannot be reached"
        if sending.status is not None and sending.status >= _FIRST_REFUSAL:
            outcome = f"answered {sending.status}"
        return ServerAway(f"the MCP server {self._server.label} {outcome}: {storable(said, 500)}")

    # Using it

    async def list(self) -> None:
        """List its tools again. Raises ServerAway."""
        sending = Sending()
        token = CURRENT.set(sending)
        self._busy += 1
        try:
            async with asyncio.timeout(self._within):
                self.listing = await self._list()
            self._is_doubted = False
        except Exception as error:  # noqa: BLE001 - as in _own
            raise self._away(error, sending) from cause_of(error)
        finally:
            CURRENT.reset(token)
            self._leave()

    async def _list(self) -> Listing:
        found: list[Tool] = []
        cursor: str | None = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if len(found) > MOST_TOOLS or (cursor is not None and not page.tools):
                raise InvalidValue(
                    f"the MCP server {self._server.label} lists more than {MOST_TOOLS} tools, or goes on for ever"
                )
            if cursor is None:
                return Listing(tuple(map(_listed, found)), time.monotonic())

    async def can_send(self, *, within: float) -> bool:
        """Return whether a call may be sent: after one that got no answer, only if the server answers ``within``."""
        if not (self._is_doubted or self._health.has_exited()):
            return self.is_open
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().create_task(self._answers(within), context=Context())
        return await asyncio.shield(self._probe) and self.is_open  # calls at the same time share one probe

    async def _answers(self, within: float) -> bool:
        sending = Sending()
        CURRENT.set(sending)
        self._busy += 1
        try:
            async with asyncio.timeout(within):
                await self._client.list_tools()  # newer versions of the protocol have no ping
        except MCPError as error:
            # A refusal is an answer, too. But one of a proxy is not an answer of the server.
            if error.code == CONNECTION_CLOSED or (sending.status or 0) >= _FIRST_SERVER_ERROR:
                return False
        except Exception as error:  # noqa: BLE001 - as in _own
            _log.warning("the MCP server %s does not answer any more: %r", self._server.label, error)
            return False
        finally:
            self._leave()
        self._is_doubted = False
        return True

    async def call(self, tool: str, arguments: Mapping[str, JsonValue], meta: Mapping[str, Any]) -> CallAnswer:
        """Call a tool. Raises ServerAway, CallRefused or AnswerUnclear, depending on what is known about the call."""
        sending = Sending(CALL)
        token = CURRENT.set(sending)
        self._busy += 1
        params = CallToolRequestParams.model_validate({"name": tool, "arguments": arguments, "_meta": meta})
        try:
            # Not client.call_tool: it drops a result that does not match the tool's output schema. The call was made.
            result = await self._answer_to(CallToolRequest(params=params))
        except Exception as error:  # noqa: BLE001 - as in _own
            if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
                self._retired = True
            raise meaning_of(error, sending, server=self._server.label, tool=tool) from cause_of(error)
        finally:
            CURRENT.reset(token)
            self._leave()
        if isinstance(result, InputRequiredResult):
            raise AnswerUnclear(
                f"the MCP server {self._server.label} asks for more input before it goes on with {tool}, and "
                "Holdfast cannot give it any; leave the tool out with only="
            )
        return read_answer(result)

    async def _answer_to(self, request: CallToolRequest) -> CallToolResult | InputRequiredResult:
        asking = asyncio.create_task(self._client.session.send_request(request, _RESULT))
        try:
            await asyncio.wait([asking])
        except asyncio.CancelledError:
            # At once, and not after the SDK has notified the server: that takes seconds if the server does not read.
            self._is_doubted = True
            asking.cancel()
            await asyncio.wait([asking])
            raise
        return asking.result()

    def _leave(self) -> None:
        self._busy -= 1
        if self._retired:
            self.retire()


def _is_missing_program(error: BaseException) -> bool:
    """Return whether the program or folder does not exist, or may not be used: waiting does not help then."""
    return isinstance(error, OSError) and error.errno in {ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, ENOEXEC}


def _listed(tool: Tool) -> Listed:
    hinted = tool.annotations
    hints = (
        ToolHints()
        if hinted is None
        else ToolHints(
            read_only=hinted.read_only_hint,
            destructive=hinted.destructive_hint,
            idempotent=hinted.idempotent_hint,
            open_world=hinted.open_world_hint,
        )
    )
    said = redacted_data({"description": tool.description or "", "schema": tool.input_schema})  # to a model
    return Listed(name=tool.name, hints=hints, **said)
