"""Readings: what the arguments of tool calls were read as, fixed when the model's answer is recorded.

A default factory gives another value each time, and a tool may be changed while a person decides. So arguments are read
once, and every later attempt finds what they were read as in the journal. What the model wrote stands there already:
a reading adds only what differs from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.model.canonical import canonical, digest, parse
from holdfast.model.errors import CodecError
from holdfast.model.message import ToolCall
from holdfast.model.task import JsonValue


@dataclass(frozen=True, slots=True)
class FixedArguments:
    """What one call was read as."""

    arguments: dict[str, JsonValue]
    """By name, with the defaults of what the model left out."""
    wrong: str | None = None
    """Why the call cannot be made: there was no such tool, or it does not take such arguments."""

    def to_data(self, call: ToolCall) -> dict[str, JsonValue]:
        """Return what is recorded, beside what the model wrote."""
        if self.wrong is not None:
            return {"wrong": self.wrong}
        wrote = _what_it_wrote(call.arguments)
        return {"set": {name: value for name, value in self.arguments.items() if not _holds(wrote, name, value)}}

    @classmethod
    def of(cls, data: Any, call: ToolCall) -> FixedArguments:  # noqa: ANN401 - what the step recorded
        """Read what was recorded."""
        if "wrong" in data:
            return cls({}, wrong=str(data["wrong"]))
        return cls({**_what_it_wrote(call.arguments), **data["set"]})


def fingerprint(arguments: str) -> str:
    """Return the identity of what a model wrote: the same for the same data, however it is spaced and ordered."""
    try:
        return digest(canonical(parse(_text(arguments))))
    except (CodecError, UnicodeError):
        return digest(arguments.encode("utf-8", "backslashreplace"))


def _what_it_wrote(arguments: str) -> dict[str, JsonValue]:
    """Return what a model wrote as data; nothing, if it cannot be read strictly: then all of it was recorded."""
    try:
        wrote = parse(_text(arguments))
    except (CodecError, UnicodeError):
        return {}
    return wrote if isinstance(wrote, dict) else {}


def _text(arguments: str) -> bytes:
    return (arguments.strip() or "{}").encode()


def _holds(wrote: dict[str, JsonValue], name: str, value: JsonValue) -> bool:
    return name in wrote and canonical(wrote[name]) == canonical(value)
