"""The protocol's own tasks (the extension io.modelcontextprotocol/tasks): a submission that is followed by polling.

A client that knows the extension gets a task handle from ``submit_task(follow=true)`` instead of an answer, and asks
with ``tasks/get`` until there is a result. The handle is the id of our task: it outlives the server and the client.

A question to a person is not an ``input_required``: then the client would answer it, and a client is an agent. Such a
task is "working", and its message says whom it waits for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, CallToolRequestParams, CallToolResult, RequestParams, TextContent
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from holdfast.mcp.access import CallerAccess
from holdfast.mcp.excerpts import fitted, shortened, text_of
from holdfast.mcp.forms import detail_of
from holdfast.mcp.toolset.toolbox import FOLLOW
from holdfast.model.errors import NotFound
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.service.access import AccessScope
from holdfast.service.forms import Form, moment

EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 2000
_STATUS: Final = {
    TaskState.COMPLETED: "completed",
    # "failed" is for errors of the protocol: a failed task is a completed call, with an error in its result.
    TaskState.FAILED: "completed",
    TaskState.CANCELLED: "cancelled",
}

Context = ServerRequestContext[Any, Any]
AccessOf = Callable[[Context], CallerAccess]


class TaskParams(RequestParams):
    """Names a task."""

    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    """Answers to what a task asked its client for."""

    input_responses: dict[str, Any] = Field(default_factory=dict, alias="inputResponses")


def register(server: Server[Any], access_of: AccessOf, refusing: Callable[..., Any]) -> None:
    """Make a server answer the extension's methods, and declare the extension."""

    def method(scope: AccessScope, answer: Callable[[CallerAccess, Task], Awaitable[Form]]) -> Callable[..., Any]:
        async def handle(ctx: Context, params: TaskParams) -> Form:
            require_client_extension(ctx, EXTENSION)
            _check_name(ctx, params.task_id)
            access = access_of(ctx)
            access.check(scope)
            return {"resultType": "complete", **await answer(access, await _task(access, params.task_id))}

        return cast("Callable[..., Any]", refusing(handle))

    server.add_request_handler("tasks/get", TaskParams, method(AccessScope.READ, _detailed))
    server.add_request_handler("tasks/update", UpdateParams, method(AccessScope.READ, _update))
    server.add_request_handler("tasks/cancel", TaskParams, method(AccessScope.SUBMIT, _cancel))
    server.extensions[EXTENSION] = {}


async def or_task(
    ctx: Context, access: CallerAccess, params: CallToolRequestParams, result: CallToolResult
) -> CallToolResult | Form:
    """Return a task handle in place of the answer to a submission, for a client that wants to follow it."""
    if params.name != "submit_task" or result.is_error or not declares(ctx):
        return result
    if not (params.arguments or {}).get(FOLLOW):
        return result  # a client with a handle waits for the end, which may take days
    task = await _task(access, result.structured_content["task_id"])
    return {"resultType": "task", **_outline(task)}


async def _update(_access: CallerAccess, _task: Task) -> Form:
    """Do nothing: the server never asks a client for input, and the extension says to ignore unexpected answers."""
    return {}


async def _cancel(access: CallerAccess, task: Task) -> Form:
    await access.agent.cancel(task.id, "cancelled by its client")
    return {}


def _check_name(ctx: Context, task_id: str) -> None:
    """Refuse a request whose header names another task than its body: a proxy may have used the header."""
    named = None if ctx.request is None else ctx.request.headers.get("mcp-name")
    if named is not None and named.strip() != task_id:
        raise MCPError(
            HEADER_MISMATCH, "the header Mcp-Name names another task than the body; send the same id in both"
        )


def declares(ctx: Context) -> bool:
    """Return whether the client follows tasks of the protocol."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False  # results of older revisions have no place for the extension, whatever the client declares
    capabilities = ctx.session.client_capabilities
    return bool(capabilities and capabilities.extensions and EXTENSION in capabilities.extensions)


async def _task(access: CallerAccess, task_id: str) -> Task:
    task = await access.service.whole_task(task_id)
    if task is None:
        raise NotFound("task", task_id[:200])
    return task


def _outline(task: Task) -> Form:
    return {
        "taskId": task.id,
        "status": _STATUS.get(task.state, "working"),
        "statusMessage": f"{task.name}: {task.state}",
        "createdAt": moment(task.created_at),
        "lastUpdatedAt": moment(task.updated_at),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


async def _detailed(access: CallerAccess, task: Task) -> Form:
    outline = _outline(task)
    if not task.state.is_terminal:
        situation = (await access.service.overview(task.id)).situation
        return outline | {"statusMessage": shortened(situation.now, 500)}
    if outline["status"] == "completed":
        outline["result"] = _result(task).model_dump(by_alias=True, mode="json", exclude_none=True)
    return outline


def _result(task: Task) -> CallToolResult:
    form = fitted(detail_of(task))
    return CallToolResult(
        content=[TextContent(type="text", text=text_of(form))],
        structured_content=form,
        is_error=task.state is TaskState.FAILED,
    )
