"""The toolbox: every tool with its schema, its scope, and how a call of it is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as ShownTool

from holdfast.agent.tool import Tool
from holdfast.mcp.access import CallerAccess
from holdfast.mcp.excerpts import fitted, text_of
from holdfast.mcp.forms import shared_of
from holdfast.mcp.toolset.handover import HandoverTools
from holdfast.mcp.toolset.inspection import InspectionTools
from holdfast.mcp.toolset.memory import MemoryTools
from holdfast.mcp.toolset.shared_state import SharedStateTools
from holdfast.mcp.toolset.submission import SubmissionTools
from holdfast.model.errors import HoldfastError, StateConflict, StoreError
from holdfast.model.task import JsonValue
from holdfast.redaction import make_logger, redacted
from holdfast.service.access import AccessScope

FOLLOW: Final = "follow"
"""The parameter that asks for a task of the protocol; hidden from clients that do not know them."""

_NULL: Final = {"type": "null"}

_log = make_logger(__name__)


@dataclass(frozen=True)
class Exposed:
    """One tool, as it is offered."""

    group: type[Any]
    """A class that is made for a request; the tool is a method of it."""
    name: str
    scope: AccessScope
    is_destructive: bool = False
    is_idempotent: bool = False

    @cached_property
    def tool(self) -> Tool:
        """What reads the arguments; made of the method's signature and docstring."""
        described: Callable[..., Any] = getattr(object.__new__(self.group), self.name)  # only looked at, never called
        return Tool(described, risk="read_only" if self.scope is AccessScope.READ else "external_action")

    @cached_property
    def shown(self) -> ShownTool:
        """What a client is shown."""
        return ShownTool(
            name=self.name,
            title=self.name.replace("_", " ").capitalize(),
            description=self.tool.description,
            input_schema=slim(self.tool.spec.parameters),
            annotations=ToolAnnotations(
                read_only_hint=self.scope is AccessScope.READ,
                destructive_hint=self.is_destructive,
                idempotent_hint=self.is_idempotent or self.scope is AccessScope.READ,
                open_world_hint=False,
            ),
        )

    async def call(self, access: CallerAccess, arguments: str) -> dict[str, JsonValue]:
        """Call it. Raises HoldfastError."""
        access.check(self.scope)
        chosen = self.tool.restore(self.tool.read(arguments))
        answer: dict[str, JsonValue] = await getattr(self.group(access), self.name)(**chosen)
        return answer


TOOLS: Final[dict[str, Exposed]] = {
    exposed.name: exposed
    for exposed in (
        Exposed(InspectionTools, "get_task", AccessScope.READ),
        Exposed(InspectionTools, "list_tasks", AccessScope.READ),
        Exposed(InspectionTools, "wait_for_task", AccessScope.READ),
        Exposed(InspectionTools, "read_resource", AccessScope.READ),
        Exposed(SubmissionTools, "submit_task", AccessScope.SUBMIT),
        Exposed(SubmissionTools, "cancel_task", AccessScope.SUBMIT, is_destructive=True, is_idempotent=True),
        Exposed(SharedStateTools, "patch_state", AccessScope.WORK, is_destructive=True),
        Exposed(SharedStateTools, "append_facts", AccessScope.WORK, is_idempotent=True),
        Exposed(SharedStateTools, "add_artifact", AccessScope.WORK, is_idempotent=True),
        Exposed(HandoverTools, "claim_task", AccessScope.WORK),
        Exposed(HandoverTools, "report_progress", AccessScope.WORK),
        Exposed(HandoverTools, "complete_step", AccessScope.WORK, is_idempotent=True),
        Exposed(HandoverTools, "ask_human", AccessScope.WORK),
        Exposed(HandoverTools, "finish_task", AccessScope.WORK, is_destructive=True),
        Exposed(HandoverTools, "release_task", AccessScope.WORK),
        Exposed(MemoryTools, "remember", AccessScope.WORK, is_idempotent=True),
        Exposed(MemoryTools, "recall", AccessScope.READ),
    )
}


def slim(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without repetitions: every client sends all schemas with every conversation.

    It leaves out that an optional parameter may be null, and is null by default: a caller without a value leaves the
    parameter out.
    """
    properties = schema.get("properties", {})
    return {**schema, "properties": {name: _slim(one) for name, one in properties.items()}}


def _slim(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if not (name == "default" and value is None)}
    others = [one for one in kept.get("anyOf", ()) if one != _NULL]
    if len(others) == 1 and _NULL in kept["anyOf"]:
        del kept["anyOf"]
        kept = {**others[0], **kept}
    return kept


def shown_to(access: CallerAccess, *, follows: bool) -> list[ShownTool]:
    """Return the tools the caller may call; ``follows``: whether its client follows tasks of the protocol."""
    shown = [exposed.shown for exposed in TOOLS.values() if access.caller.may(exposed.scope)]
    return shown if follows else [_without(tool, FOLLOW) for tool in shown]


def _without(tool: ShownTool, parameter: str) -> ShownTool:
    properties = tool.input_schema["properties"]
    if parameter not in properties:
        return tool
    kept = {name: schema for name, schema in properties.items() if name != parameter}
    return tool.model_copy(update={"input_schema": {**tool.input_schema, "properties": kept}})


async def call(access: CallerAccess, name: str, arguments: dict[str, JsonValue]) -> CallToolResult:
    """Call a tool; whatever happens, answer with a text that a model can act on."""
    exposed = TOOLS[name]
    try:
        answer = await exposed.call(access, text_of(arguments))
    except StateConflict as conflict:
        task = await access.service.task(conflict.task_id)
        newer = shared_of(task, conflict.state) | {"version": conflict.version}
        words = (
            f"the state is at version {conflict.version} by now, not {conflict.expected}; nothing was changed. Look at "
            "'newer', merge, and call again with its version"
        )
        return _result({"error": words, "kind": "StateConflict", "newer": newer}, is_error=True)
    except StoreError as error:
        _log.warning("tool %s of %s: the store does not answer: %s", name, access.caller.name, error)
        words = (
            "the store does not answer; it is not known whether this was done. Look, then do it again: a repeated call "
        )
        return _result({"error": f"{words}is done once", "kind": type(error).__name__}, is_error=True)
    except HoldfastError as error:
        _log.debug("tool %s of %s was refused: %s", name, access.caller.name, error)
        return _result({"error": redacted(str(error)), "kind": type(error).__name__}, is_error=True)
    return _result(answer)


def _result(answer: dict[str, JsonValue], *, is_error: bool = False) -> CallToolResult:
    rest = str(answer.get("uri") or "")
    small = fitted(answer, rest=rest)
    return CallToolResult(
        content=[TextContent(type="text", text=text_of(small))], structured_content=small, is_error=is_error
    )
