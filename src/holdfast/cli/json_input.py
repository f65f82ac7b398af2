"""JSON and plain text, as people type them in a shell."""

from __future__ import annotations

from holdfast.model.canonical import parse
from holdfast.model.errors import CodecError, InvalidValue
from holdfast.model.task import JsonValue


def read_json(text: str, *, what: str) -> JsonValue:
    """Read one JSON value, strictly."""
    try:
        return parse(as_bytes(text), name=what)
    except CodecError as error:
        raise InvalidValue(f"{error}; write JSON, and put it in single quotes: '[\"text\", 3]'") from None


def read_value(text: str, *, as_text: bool) -> JsonValue:
    """Read a value that the user typed: as JSON where it is valid JSON; otherwise, or with ``as_text``, as text."""
    if as_text:
        return text
    try:
        return parse(as_bytes(text))
    except CodecError:
        return text


def as_bytes(text: str) -> bytes:
    """Return what was typed."""
    # A shell passes on bytes that are not UTF-8, and Python keeps them as surrogates: this restores the bytes.
    return text.encode("utf-8", "surrogateescape")
