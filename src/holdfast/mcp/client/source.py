"""tools: the tools of an MCP server, for an Agent's ``tools=``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.agent.tool import ToolSource, check_tool_name
from holdfast.engine.api.definition import check_retry
from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.journal import RESERVED
from holdfast.engine.steps.call import Call
from holdfast.engine.steps.step import perform
from holdfast.mcp.client.catalogue import Listed, Listing
from holdfast.mcp.client.declarations import Declared
from holdfast.mcp.client.errors import CannotStart, ServerAway
from holdfast.mcp.client.reach import reach
from holdfast.mcp.client.servers import Server, server_at
from holdfast.mcp.client.tool import ServerTool
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import InvalidValue, MissingExtra
from holdfast.model.failure import storable
from holdfast.model.retry import Retry
from holdfast.model.task import JsonValue
from holdfast.redaction import make_logger

if TYPE_CHECKING:
    from holdfast.mcp.client.answers import CallAnswer

CONNECT = 30.0
"""Seconds for starting or reaching a server, and having it list its tools."""

PATIENCE = Retry(max_attempts=60, initial=1.0, max_delay=60.0, jitter="equal", retry_on=(ServerAway,))
"""How a task waits for a server that is away when an attempt begins: for about three quarters of an hour."""

FEW = 4
"""Tries, some seconds in all, where its command does not exist: it is being installed, or mistyped."""

WAIT = "tools"
"""The kind of the step that waits for a server."""

_log = make_logger(__name__)


def tools(
    server: str | Sequence[str],
    *,
    declare: Mapping[str, Declared] | None = None,
    only: Collection[str] | None = None,
    prefix: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    connect: float | timedelta = CONNECT,
    wait: Retry = PATIENCE,
) -> ServerTools:
    """Return the tools of an MCP server, for an agent.

    ``Agent("ops", model=..., tools=[check_disk, tools(["uvx", "some-server"])])``

    ``server`` is a command (a list of words; ``env`` is added to a small safe environment, ``cwd`` is its folder) or
    the URL of one that speaks streamable HTTP (``headers``, or ``token`` for a bearer token). It is reached when an
    attempt at a task begins, not before: an application can be imported and started while the server is away.

    ``declare`` says what is known about its tools, by the server's names. A tool that is not declared is taken for the
    worst: risk ``external_action``, effect ``once``. What the server itself says may raise what was declared, and
    never lowers it. ``only`` names the tools that are offered; ``only=declared`` takes a mapping given as ``declare``
    as well. ``prefix`` is put before their names.

    ``connect`` limits how long reaching the server takes. While it is away at the beginning of an attempt, the task
    waits without holding a worker, as ``wait`` says; for a command that does not exist, a few seconds.
    """
    return ServerTools(
        server_at(server, env=env, cwd=cwd, headers=headers, token=token),
        declare=declare or {},
        only=only,
        prefix=prefix,
        connect=as_seconds(connect, what="connect"),
        wait=PATIENCE if wait is None else check_retry(wait),
    )


class ServerTools(ToolSource):
    """The tools of one server, on the terms of one agent."""

    def __init__(
        self,
        server: Server,
        *,
        declare: Mapping[str, Declared],
        only: Collection[str] | None,
        prefix: str,
        connect: float,
        wait: Retry,
    ) -> None:
        """See ``tools``."""
        if find_spec("mcp") is None:
            raise MissingExtra("mcp", "an Agent with the tools of an MCP server")
        if isinstance(only, str):
            raise InvalidValue(f'only is {only!r}; name the tools in a list: only=["{only}"]')
        self._server = server
        self._declared = dict(declare)
        self._only = None if only is None else frozenset(only)
        self._prefix = prefix
        self._connect = connect
        self._wait = wait
        self._built: tuple[Listing, tuple[ServerTool, ...]] | None = None
        for name, declared in self._declared.items():
            if not isinstance(declared, Declared):
                raise InvalidValue(f"declare[{name!r}] is {declared!r}; write Declared(risk=...)")
        self._promised = [self._tool(Listed(name=name)) for name in self._declared if self._is_offered(name)]
        """The declared tools, before the server has listed any. Made here, so that a mistake is reported here."""

    def __repr__(self) -> str:
        """Name the server, without what may be secret."""
        return f"<tools of the MCP server {self._server.label}>"

    async def find(self, attempt: Attempt) -> Sequence[ServerTool]:
        """Return them as the server lists them; wait for one that is away, without holding a worker."""
        if attempt.discovery.is_under_way:
            return self._promised  # no tool is called: the task only undoes what was done
        try:
            return await self.listed()
        except ServerAway as away:
            _log.warning("task %s waits: %s", attempt.task.id, away)
            wait = self._wait_for(away)
        number = len(attempt.journal.completed(WAIT)) + 1
        key = f"{RESERVED}{WAIT}:{storable(self._server.label, 100)}:{number}"
        await perform(attempt, Call(key, self._until_there, (), wait, None, None, kind=WAIT))
        return await self.listed()

    def _wait_for(self, away: ServerAway) -> Retry:
        if isinstance(away, CannotStart):
            return replace(self._wait, max_attempts=min(FEW, self._wait.max_attempts))
        return self._wait

    async def _until_there(self) -> str:
        await self.listed()
        return self._server.label

    async def listed(self) -> Sequence[ServerTool]:
        """Return the tools that the server lists now, or listed last. Raises ServerAway."""
        listing = await reach(self._server).listing(within=self._connect)
        if self._built is None or self._built[0] is not listing:
            self._built = listing, tuple([tool async for tool in self._usable(listing)])
            asked_for = frozenset(self._declared) if self._only is None else self._only
            if missing := asked_for - {each.name for each in listing.tools}:
                _log.warning("the MCP server %s has no tool %s", self._server.label, ", ".join(sorted(missing)))
        return self._built[1]

    async def close(self) -> None:
        """Close this loop's connection to the server. It is closed with the loop in any case."""
        await reach(self._server).close()

    def _is_offered(self, name: str) -> bool:
        return self._only is None or name in self._only

    def _is_asked_for(self, name: str) -> bool:
        return self._only is not None or name in self._declared

    async def _usable(self, listing: Listing) -> AsyncIterator[ServerTool]:
        """Yield the offered tools. One that is not usable is left out, unless it was asked for by name."""
        seen: set[str] = set()
        for each in listing.tools:
            if not self._is_offered(each.name):
                continue
            if each.name in seen:
                _log.warning(
                    "the MCP server %s lists %r twice; one is left out", self._server.label, storable(each.name, 80)
                )
                continue
            seen.add(each.name)
            try:
                yield self._tool(each)
            except InvalidValue as error:
                if self._is_asked_for(each.name):
                    raise
                _log.warning("%s; it is left out", error)
            await asyncio.sleep(0)  # other tasks of the loop have leases to renew: a server may list very many tools

    def _tool(self, listed: Listed) -> ServerTool:
        declared = self._declared.get(listed.name, Declared())
        name = declared.name or f"{self._prefix}{listed.name}"
        try:
            check_tool_name(name)
        except InvalidValue as error:
            raise InvalidValue(
                f"the MCP server {self._server.label} has a tool {storable(listed.name, 80)!r}: {error}; name it with "
                "declare={...: Declared(name=...)}, choose another prefix=, or leave it out with only="
            ) from None
        return ServerTool(
            name,
            listed,
            declared,
            self._call,
            server=self._server.label,
            is_spare=not self._is_asked_for(listed.name),
        )

    async def _call(
        self, tool: str, arguments: Mapping[str, JsonValue], meta: Mapping[str, Any], timeout: float
    ) -> CallAnswer:
        # Half of the tool's time: if all of it ran out while connecting, it would not be known that nothing was sent.
        return await reach(self._server).call(tool, arguments, meta, within=min(self._connect, timeout / 2))
