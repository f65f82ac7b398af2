"""A server in this process, and clients of either era."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client.client import ConnectMode
from mcp_types import TextResourceContents

from holdfast import Holdfast
from holdfast.mcp.server import McpServer
from holdfast.model.task import HANDOVER
from holdfast.service.access import EVERYTHING, AccessScope, Caller
from holdfast.service.service import Service

ERAS: tuple[ConnectMode, ...] = ("auto", "legacy")
Answer = dict[str, Any]


def server_of(
    hold: Holdfast,
    name: str = "ada",
    *,
    scopes: frozenset[AccessScope] = EVERYTHING,
    read_only: bool = False,
    claimable: Sequence[str] = (HANDOVER,),
) -> McpServer:
    return McpServer(Service(hold), caller=Caller(name, scopes), read_only=read_only, claimable=claimable)


def client_of(server: McpServer, era: ConnectMode = "auto", **options: Any) -> AbstractAsyncContextManager[Client]:  # noqa: ANN401
    return Client(server.protocol, mode=era, **options)


@asynccontextmanager
async def connected(
    hold: Holdfast,
    name: str = "ada",
    *,
    era: ConnectMode = "auto",
    **options: Any,  # noqa: ANN401 - of the server
) -> AsyncIterator[Client]:
    """A client of a server of its own."""
    async with client_of(server_of(hold, name, **options), era) as client:
        yield client


async def ask(client: Client, tool: str, /, **arguments: Any) -> Answer:  # noqa: ANN401
    """Call a tool that has to succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.structured_content
    answer: Answer = result.structured_content
    [content] = result.content
    assert json.loads(content.text) == answer  # type: ignore[union-attr]
    return answer


async def refused(client: Client, tool: str, /, **arguments: Any) -> Answer:  # noqa: ANN401
    """Call a tool that has to refuse, with an error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    answer: Answer = result.structured_content
    assert answer["error"]
    return answer


async def read(client: Client, uri: str) -> Answer:
    """Read a resource that is JSON, not from the client's cache."""
    [content] = (await client.read_resource(uri, cache_mode="refresh")).contents
    assert isinstance(content, TextResourceContents)
    assert (content.uri, content.mime_type) == (uri, "application/json")
    answer: Answer = json.loads(content.text)
    return answer


async def submitted(client: Client, goal: str = "Free the disk", **options: Any) -> str:  # noqa: ANN401
    """Submit something; return its id."""
    return str((await ask(client, "submit_task", goal=goal, **options))["task_id"])


async def taken(client: Client, goal: str = "Free the disk", **options: Any) -> tuple[str, str]:  # noqa: ANN401
    """Submit something and take it; return its id and the lease."""
    answer = await ask(client, "submit_task", goal=goal, take=True, **options)
    return str(answer["task_id"]), str(answer["lease"])
