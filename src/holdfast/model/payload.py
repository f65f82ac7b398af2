"""Payloads: typed values inside a task's record, where people and other programs read plain JSON.

A value that is plain JSON is stored unchanged: ``"billing"``. Any other value (a datetime, a dataclass) is stored as
the codec's envelope, ``{"data": ..., "schema": 1, ...}``; so is plain data that looks like such an envelope.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.model.canonical import Unreadable, parse, write, write_plain
from holdfast.model.codec import decode, encode
from holdfast.model.errors import CodecError
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.task import JsonValue

_LEAST: Final = frozenset({"data", "schema"})
_MOST: Final = frozenset({"data", "schema", "tags", "typed"})


def to_json(value: object, as_type: object = Any, *, name: str = "value") -> JsonValue:
    """Return the JSON to store for ``value``; CodecError if it could not be restored exactly."""
    plain = write_plain(value, DEFAULT_LIMITS)
    if plain is not None and not _is_envelope(value):
        if len(plain) > DEFAULT_LIMITS.max_bytes:
            DEFAULT_LIMITS.check_size(len(plain), name)
        return value
    return parse(encode(value, as_type=as_type, name=name), wrapping=1)


def from_json(data: JsonValue, as_type: object = Any, *, name: str = "value") -> Any:  # noqa: ANN401
    """Return the value that was stored as ``data``."""
    if isinstance(data, Unreadable):
        raise CodecError(data, path=name)
    if not _is_envelope(data):
        return data
    return decode(write(data), as_type, name=name)


def plain(data: JsonValue) -> JsonValue:
    """Return stored data for people and other programs: without the codec's envelope."""
    return data["data"] if _is_envelope(data) else data


def _is_envelope(data: object) -> bool:
    return type(data) is dict and data.keys() >= _LEAST and data.keys() <= _MOST
