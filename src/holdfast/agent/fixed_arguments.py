"""Readings: the arguments of tool calls as they were read, fixed when the model's answer is recorded.

A default factory gives another value each time, and a tool may be changed while a person decides. So arguments are read
once, and every later attempt finds this reading in the journal. The model's own text is already there: a reading adds
only what differs from it.
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
    """The arguments of one call, as they were read."""

    arguments: dict[str, JsonValue]
    """By name, with the defaults of missing ones."""
    wrong: str | None = None
    """Why the call cannot be made: there is no such tool, or it does not take these arguments."""

    def to_data(self, call: ToolCall) -> dict[str, JsonValue]:
        """Return what is recorded in addition to the model's own text."""
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
    """Return the identity of a model's arguments: the same for the same data, with any spacing and order."""
    try:
        return digest(canonical(parse(_text(arguments))))
    except (CodecError, UnicodeError):
        return digest(arguments.encode("utf-8", "backslashreplace"))


def _what_it_wrote(arguments: str) -> dict[str, JsonValue]:
    """Return a model's arguments as data; empty if they are not strict JSON: then the reading has all of them."""
    try:
        wrote = parse(_text(arguments))
    except (CodecError, UnicodeError):
        return {}
    return wrote if isinstance(wrote, dict) else {}


def _text(arguments: str) -> bytes:
    return (arguments.strip() or "{}").encode()


def _holds(wrote: dict[str, JsonValue], name: str, value: JsonValue) -> bool:
    return name in wrote and canonical(wrote[name]) == canonical(value)
