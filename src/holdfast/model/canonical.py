"""Canonical JSON: one value, one byte string, so that digests and comparisons of stored bytes mean something.

Sorted keys, no spaces, UTF-8, numbers as Python's ``json`` writes them. Used by the typed codec for every payload
that is stored, and directly for data that is plain JSON already (patches, states, approval arguments).

The standard library defines the form; msgspec is only faster. It is used where both are known to write the same bytes,
and the tests check that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgspec

from holdfast.model.errors import CodecError
from holdfast.model.limits import DEFAULT_LIMITS, Limits, check_int, check_text, child_path, describe, refuse_depth
from holdfast.model.task import JsonValue

_PLAIN: Final = frozenset({str, int, bool, float, type(None), list, dict})
_STRING_KEYS: Final = frozenset({str})
_LEAST, _MOST = 1e-4, 1e16

_write_fast = msgspec.json.Encoder(order="deterministic").encode
_read_fast = msgspec.json.Decoder().decode
_write_text = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode


def canonical(value: JsonValue, *, limits: Limits = DEFAULT_LIMITS, name: str = "value") -> bytes:
    """Return the canonical bytes of plain JSON data; anything else is a CodecError that names its place."""
    data = write_plain(value, limits)
    if data is None:
        check_json(value, limits, name)
        data = write(value)
    if len(data) > limits.max_bytes:
        limits.check_size(len(data), name)
    return data


class Unreadable(str):
    """Replaces a stored value that cannot be read. Its text is the reason. The rest of the record can be shown."""

    __slots__ = ()


def parse(data: bytes, *, limits: Limits = DEFAULT_LIMITS, name: str = "data", wrapping: int = 0) -> JsonValue:
    """Return the JSON value in ``data``, strictly: one value, no duplicate keys, no NaN, within ``limits``.

    ``wrapping`` outer levels are the envelope and do not count against the depth.
    """
    if len(data) > limits.max_bytes:
        limits.check_size(len(data), name)
    value = _read(data, limits, name)
    depth = limits.max_depth + wrapping
    # Every level opens with a bracket: with few brackets, the value cannot be too deep.
    if data.count(b"[") + data.count(b"{") > depth and _is_deeper_than(depth, value):
        refuse_depth(limits, name)
    return value


def digest(data: bytes) -> str:
    """Return the SHA-256 of ``data`` in hex: the identity of arguments, artifacts and checkpoints."""
    return hashlib.sha256(data).hexdigest()


def write_plain(value: object, limits: Limits) -> bytes | None:
    """Return the canonical bytes if ``value`` is simple plain data; None means "check it in full", not "impossible"."""
    writer = _choose_writer(value, limits)
    if writer is None:
        return None
    try:
        return writer(value)
    except ValueError:  # a lone surrogate, or an int too long to be read again
        return None


def write(value: JsonValue) -> bytes:
    """Write data that was checked to be plain JSON, whatever its strings and numbers look like."""
    # Only surrogates have no UTF-8 form. In JSON text they occur only inside strings, where \udXXX is their escape.
    return _write_text(value).encode("utf-8", "backslashreplace")


def check_json(value: object, limits: Limits, name: str) -> None:
    """Raise CodecError for the first part of ``value`` that plain JSON cannot restore exactly."""
    pending: list[tuple[Any, str, int]] = [(value, name, 0)]
    seen = 0
    while pending:
        item, path, depth = pending.pop()
        kind = type(item)
        if kind is str:
            check_text(item, path)
        elif kind is int:
            check_int(item, path)
        elif kind is float and not math.isfinite(item):
            raise CodecError(f"{item} is not a JSON number; use None or text", path=path)
        elif kind is dict or kind is list:
            if depth == limits.max_depth:
                refuse_depth(limits, path)
            seen += len(item)
            limits.check_size(seen, name)
            members = _members(item, path) if kind is dict else enumerate(item)
            pending += [(member, child_path(path, key), depth + 1) for key, member in members]
        elif kind not in _PLAIN:
            raise CodecError(f"{describe(item)} is not JSON data; convert it first", path=path)


def _members(mapping: Any, path: str) -> Any:  # noqa: ANN401 - a dict of anything: its keys are what is checked
    for key in mapping:
        if type(key) is not str:
            raise CodecError(f"the key {key!r} is not text; JSON objects have text keys", path=path)
        check_text(key, path)
    return mapping.items()


def _choose_writer(value: object, limits: Limits) -> Callable[[object], bytes] | None:
    """Pick the writer for ``value`` if it is JSON data of exact built-in types within the depth.

    Walks level by level, so that the work for each item is done in C.
    """
    writer: Callable[[object], bytes] = _write_fast
    level: list[Any] = [value]
    room = limits.max_bytes
    for depth in range(limits.max_depth + 1):
        kinds = set(map(type, level))
        if not kinds <= _PLAIN:
            return None
        # Outside these magnitudes repr() and msgspec spell the exponent differently.
        if float in kinds and any(
            type(item) is float and item != 0 and not _LEAST <= abs(item) < _MOST for item in level
        ):
            writer = write  # it rejects numbers that are not finite
        if dict not in kinds and list not in kinds:
            return writer
        room -= len(level)
        deeper = None if depth == limits.max_depth else _next_level(level, room)
        if deeper is None:
            return None
        level = deeper
    return writer


def _next_level(level: list[Any], room: int) -> list[Any] | None:
    """Return everything in the containers of ``level``; None for odd keys or more than ``room`` items."""
    deeper: list[Any] = []
    for item in level:
        kind = type(item)
        if kind is dict:
            if item and set(map(type, item)) != _STRING_KEYS:
                return None
            deeper += item.values()
        elif kind is list:
            deeper += item
        # Containers that share their items can be exponentially larger than they look.
        if len(deeper) > room:
            return None
    return deeper


def _read(data: bytes, limits: Limits, name: str) -> JsonValue:
    try:
        value = _read_fast(data)
        # If writing gives the same bytes, the data had no duplicate key and no unusual spelling.
        if _write_fast(value) == data:
            return value
    except RecursionError:
        refuse_depth(limits, name)  # how deep Python itself reads differs between its versions
    except ValueError:
        pass  # the strict reader gives the reason, or accepts it: msgspec rejects lone surrogates
    try:
        return _read_strictly(data.decode("utf-8"))
    except CodecError as error:
        raise CodecError(str(error), path=name) from None
    except RecursionError:
        refuse_depth(limits, name)  # how deep Python itself reads differs between its versions
    except ValueError as error:
        raise CodecError(f"is not JSON: {error}", path=name) from error


def _without_duplicates(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise CodecError(f"holds the key {twice!r} twice; it is not clear which of the two is meant")
    return members


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise CodecError(f"holds the number {text[:40]}, which is too large for a float")
    return number


def _refuse_constant(token: str) -> NoReturn:
    raise CodecError(f"holds {token}, which is not JSON")


_read_strictly = json.JSONDecoder(
    object_pairs_hook=_without_duplicates, parse_float=_finite_float, parse_constant=_refuse_constant
).decode


def _is_deeper_than(depth: int, value: JsonValue) -> bool:
    level: list[Any] = [value]
    for _ in range(depth):
        containers = _containers(level)
        if not containers:
            return False
        level = [member for item in containers for member in (item.values() if type(item) is dict else item)]
    return bool(_containers(level))


def _containers(items: list[Any]) -> list[Any]:
    return [item for item in items if type(item) is dict or type(item) is list]
