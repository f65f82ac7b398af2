"""The conversation of an agent and its model, as data: messages, tool calls, replies, usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

from holdfast.model.errors import InvalidValue
from holdfast.model.json_object import JsonObject, without_none
from holdfast.model.task import JsonValue

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call the model asks for."""

    id: str
    """The model's own name for it; the result is sent back under it."""
    name: str
    arguments: str
    """JSON, exactly as the model wrote it; it may not be valid JSON."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "tool_call") -> ToolCall:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, ("id", "name", "arguments"))
        return cls(id=read.text("id"), name=read.text("name"), arguments=read.text("arguments"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message: each is answered by a message of role ``tool``."""
    tool_call_id: str | None = None
    """Of a tool's message: the call it answers."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form, without what is not set."""
        return without_none(
            {
                "role": self.role,
                "content": self.content,
                "tool_calls": [call.to_json() for call in self.tool_calls] or None,
                "tool_call_id": self.tool_call_id,
            }
        )

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "message") -> Message:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, ("role", "content", "tool_calls", "tool_call_id"))
        role = read.text("role")
        if role not in get_args(Role):
            raise InvalidValue(f"{path}.role: {role!r} is not a role; choose one of {', '.join(get_args(Role))}")
        return cls(
            role=cast("Role", role),
            content=read.text("content"),
            tool_calls=read.items("tool_calls", ToolCall.from_json),
            tool_call_id=read.optional_text("tool_call_id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens one model call took."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete answer of a model: a stream that was cut is an error, not a short reply."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    """None: the endpoint did not report it, and it has to be estimated."""
    model: str = ""
    """The model that answered, as the endpoint names it."""
    finish_reason: str = "stop"
    """stop, tool_calls, length, content_filter, or another word of the endpoint."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form; it is the output of the step that called the model."""
        usage = self.usage
        return without_none(
            {
                "content": self.content,
                "tool_calls": [call.to_json() for call in self.tool_calls] or None,
                "usage": usage and {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
                "model": self.model,
                "finish_reason": self.finish_reason,
            }
        )

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "reply") -> Reply:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, ("content", "tool_calls", "usage", "model", "finish_reason"))
        usage = read.raw("usage") if "usage" in read else None
        return cls(
            content=read.text("content"),
            tool_calls=read.items("tool_calls", ToolCall.from_json),
            usage=Usage(**cast("Mapping[str, int]", usage)) if usage else None,
            model=read.text("model"),
            finish_reason=read.text("finish_reason"),
        )

    @property
    def message(self) -> Message:
        """The reply as a message of the conversation."""
        return Message(role="assistant", content=self.content, tool_calls=self.tool_calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    """JSON Schema of an object."""
