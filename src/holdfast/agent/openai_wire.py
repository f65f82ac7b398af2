"""A Request in the form of the chat-completions protocol."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from holdfast.agent.model import Request
from holdfast.model.message import Message, ToolCall, ToolSpec

STREAM_OPTIONS = "stream_options"
MAX_COMPLETION_TOKENS = "max_completion_tokens"
DISPENSABLE = (STREAM_OPTIONS, MAX_COMPLETION_TOKENS)
"""Parameters that some endpoints refuse, and that a request can leave out or replace."""


def write_request(request: Request, model: str, *, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the body of the request; ``without`` names the DISPENSABLE parameters that the endpoint does not know."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if STREAM_OPTIONS not in without:
        body[STREAM_OPTIONS] = {"include_usage": True}
    if request.max_output_tokens is not None:
        name = "max_tokens" if MAX_COMPLETION_TOKENS in without else MAX_COMPLETION_TOKENS
        body[name] = request.max_output_tokens
    return body


def well_formed(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which neither UTF-8 nor the journal can store.

    Models write them: one half of an emoji in one chunk, the other half in the next. Tools that read files do, too.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, "content": well_formed(message.content)}
    if message.tool_calls:
        written["tool_calls"] = [_call(call) for call in message.tool_calls]
        # None, as endpoints write it themselves; some refuse an empty text.
        written["content"] = written["content"] or None
    if message.tool_call_id is not None:
        written["tool_call_id"] = well_formed(message.tool_call_id)
    return written


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": well_formed(call.name), "arguments": _an_object(well_formed(call.arguments))}
    return {"id": well_formed(call.id), "type": "function", "function": function}


def _an_object(arguments: str) -> str:
    """Return arguments that every endpoint can read back.

    Many endpoints parse them again to fill in the model's template. One call without valid JSON would make them refuse
    the whole conversation from then on.
    """
    try:
        if isinstance(json.loads(arguments or "{}"), dict):
            return arguments or "{}"
    except (ValueError, RecursionError):
        pass
    return json.dumps({"not_an_object": arguments})


def _tool(tool: ToolSpec) -> dict[str, Any]:
    described = {"name": tool.name, "description": well_formed(tool.description), "parameters": dict(tool.parameters)}
    return {"type": "function", "function": described}
