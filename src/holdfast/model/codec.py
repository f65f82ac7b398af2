"""The typed codec: it turns every step result, input and state into stored bytes and back.

    {"data": ..., "schema": 1, "tags": {"/when": "datetime"}, "typed": true}

``tags`` is present only when the data holds a type that JSON lacks, ``typed`` only when it holds a dataclass, pydantic
model, enum or named tuple. Those are restored only when the caller names a type: no class is ever looked up by a name
found in data. A value that cannot be restored exactly is rejected before it is stored, with its path.

Exact means: the same types and values in the same places. Three things are not kept: the order of dict keys, which
objects were shared, and which fields of a pydantic model were set explicitly.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.model.canonical import parse, write, write_plain
from holdfast.model.errors import CodecError
from holdfast.model.flatten import Flat, flatten, unflatten
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.model.restore import restore
from holdfast.model.task import JsonValue

SCHEMA: Final = 1
UNCHECKED: Final = object()
"""As ``as_type`` of encode: the types need not be restored, plain data is enough."""

_HEAD: Final = b'{"data":'
_TAIL: Final = b',"schema":1}'
_ENVELOPE_KEYS: Final = frozenset({"data", "schema", "tags", "typed"})


def encode(
    value: object,
    *,
    as_type: object = UNCHECKED,
    limits: Limits = DEFAULT_LIMITS,
    name: str = "value",
) -> bytes:
    """Return the bytes to store for ``value``.

    ``as_type`` is the annotation it will be decoded with (``Any`` for none). If given, a value that would not be
    restored as the same value is a CodecError; without it, dataclasses and similar types become plain data. ``name``
    begins the paths in messages: ``result.items[3].when``.
    """
    plain = write_plain(value, limits)
    if plain is not None:
        data = untagged(plain)
        flat = None
    else:
        flat = flatten(value, limits, name)
        data = write(envelope_of(flat))
    if len(data) > limits.max_bytes:
        limits.check_size(len(data), name)
    if flat is not None and flat.types and as_type is not UNCHECKED:
        again = flatten(decode(data, as_type, limits=limits, name=name), limits, name)
        check_same(flat, again, name)
    return data


def decode(
    data: bytes,
    as_type: object = Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    name: str = "value",
) -> Any:  # noqa: ANN401
    """Return the value that was encoded to ``data``.

    ``as_type`` brings dataclasses, models, enums and named tuples back. It does not convert what was encoded as
    plain data: a stored dict stays a dict, so that a wrong annotation cannot change a result. To make typed values
    out of data from outside, use ``restore``.
    """
    middle = middle_of(data)
    if middle is not None:
        try:
            return parse(middle, limits=limits, name=name)
        except CodecError:
            pass  # not the untagged form; read the whole envelope
    envelope = check_envelope(parse(data, limits=limits, name=name, wrapping=1), name)
    value = unflatten(envelope["data"], envelope.get("tags", {}), name)
    if envelope.get("typed") is True and as_type is not Any:
        return restore(value, as_type, name=name)
    return value


def round_trip(
    value: object,
    as_type: object = Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    name: str = "value",
) -> tuple[bytes, Any]:
    """Return the bytes to store and the value a replay will see; the first run continues with that value too."""
    data = encode(value, as_type=as_type, limits=limits, name=name)
    return data, decode(data, as_type, limits=limits, name=name)


# The envelope: also for large_values, which does the same in pieces


def untagged(plain: bytes) -> bytes:
    """Return what is stored for plain data."""
    return _HEAD + plain + _TAIL


def middle_of(data: bytes) -> bytes | None:
    """Return the plain data in what looks like the untagged form: it is, if the middle is one JSON value."""
    return data[len(_HEAD) : -len(_TAIL)] if data.startswith(_HEAD) and data.endswith(_TAIL) else None


def envelope_of(flat: Flat) -> dict[str, JsonValue]:
    """Return what is stored for a value with tags or types."""
    envelope: dict[str, JsonValue] = {"data": flat.data, "schema": SCHEMA}
    if flat.tags:
        envelope["tags"] = dict(flat.tags)
    if flat.types:
        envelope["typed"] = True
    return envelope


def check_envelope(envelope: JsonValue, name: str) -> dict[str, Any]:
    """Return the envelope; CodecError for what is none, or one of a later version."""
    if type(envelope) is not dict or type(envelope.get("schema")) is not int or "data" not in envelope:
        raise CodecError("is not a stored value: data or schema is missing", path=name)
    if not 1 <= envelope["schema"] <= SCHEMA:
        raise CodecError(
            f"was written in schema {envelope['schema']}, this version reads up to {SCHEMA}; upgrade holdfast",
            path=name,
        )
    if not envelope.keys() <= _ENVELOPE_KEYS:
        raise CodecError(f"has unknown parts {sorted(envelope.keys() - _ENVELOPE_KEYS)}", path=name)
    return envelope


def check_same(flat: Flat, again: Flat, name: str) -> None:
    """Raise CodecError if a value would come back as another: ``again`` is what came back."""
    for pointer, kind in flat.types.items():
        if again.types.get(pointer) != kind:
            cls = kind[0] if isinstance(kind, tuple) else kind
            raise CodecError(
                f"a {getattr(cls, '__qualname__', cls)} would not come back as itself; annotate the function's return "
                "type or pass returns=",
                path=flat.paths[pointer],
            )
    if again.types != flat.types or again.tags != flat.tags or not is_same(flat.data, again.data):
        raise CodecError(
            "would come back changed by its type (a converting annotation, validator or default?); "
            "return values that match their annotations",
            path=name,
        )


def is_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - JSON data
    """Compare JSON data exactly, except that an int may have become an equal float, if its annotation asks for one."""
    if type(one) is not type(other):
        return type(one) is int and type(other) is float and one == other
    if type(one) is dict:
        return one.keys() == other.keys() and all(is_same(member, other[key]) for key, member in one.items())
    if type(one) is list:
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other) and (type(one) is not float or str(one) == str(other))
