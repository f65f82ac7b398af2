"""The closed set of types beyond JSON that are stored exactly, each under a short tag.

A tag defines how to read a piece of JSON back; it is stored beside the user's data, never in it. The set is closed:
no tag names a class, so reading stored bytes can build only the types in this module.
"""

from __future__ import annotations

import base64
import math
import zoneinfo
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from holdfast.model.errors import CodecError
from holdfast.model.limits import describe

_FOLD = "[fold=1]"
_MICROSECOND = timedelta(microseconds=1)


def write_leaf(value: Any, path: str) -> tuple[str, str | int] | None:  # noqa: ANN401 - the type is what is found out
    """Return the tag and the JSON of ``value`` if its exact type has a tag."""
    writer = _WRITERS.get(type(value))
    return None if writer is None else writer(value, path)


def read_tagged(tag: str, wire: Any) -> object:  # noqa: ANN401 - JSON from a store, of any shape
    """Return the value that was written as ``wire`` under ``tag``; an error of any kind if ``wire`` is not valid."""
    return READERS[tag](wire)


def _write_float(value: float, _: str) -> tuple[str, str] | None:
    # Only the floats that JSON has no number for; other floats are plain JSON.
    return None if math.isfinite(value) else ("float", repr(value))


def _read_float(wire: str) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[wire]


def _write_datetime(value: datetime, path: str) -> tuple[str, str]:
    zone = ""
    if isinstance(value.tzinfo, zoneinfo.ZoneInfo) and value.tzinfo.key:
        zone = f"[{value.tzinfo.key}]"  # as in RFC 9557
    else:
        _check_fixed_offset(value, path)
    return "datetime", value.isoformat() + zone + (_FOLD if value.fold else "")


def _read_datetime(wire: str) -> datetime:
    text, fold = (wire.removesuffix(_FOLD), 1) if wire.endswith(_FOLD) else (wire, 0)
    if not text.endswith("]"):
        return datetime.fromisoformat(text).replace(fold=fold)
    text, _, key = text[:-1].partition("[")
    try:
        zone = zoneinfo.ZoneInfo(key)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"the time zone {key!r} is not known on this machine; pip install tzdata") from error
    instant = datetime.fromisoformat(text)
    local = instant.replace(tzinfo=zone, fold=fold)
    # If the zone's rules changed since it was written, keep the instant, not the local time.
    return local if local.utcoffset() == instant.utcoffset() else instant.astimezone(zone)


def _write_time(value: time, path: str) -> tuple[str, str]:
    _check_fixed_offset(value, path)
    return "time", value.isoformat() + (_FOLD if value.fold else "")


def _read_time(wire: str) -> time:
    return time.fromisoformat(wire.removesuffix(_FOLD)).replace(fold=int(wire.endswith(_FOLD)))


def _check_fixed_offset(value: datetime | time, path: str) -> None:
    zone = value.tzinfo
    if zone is None:
        return
    # pydantic's parser makes its own offset type, which equals the standard type that is restored.
    fixed = type(zone) is timezone or type(zone).__module__.startswith("pydantic_core")
    offset = zone.utcoffset(None) if fixed else None
    if offset is None:
        raise CodecError(
            f"{describe(zone)} as a time zone cannot be stored; use zoneinfo.ZoneInfo or datetime.timezone", path=path
        )
    if offset.microseconds:  # CPython's own parser may drop them
        raise CodecError(f"the offset {offset} of a time zone cannot be stored; use whole seconds", path=path)
    if type(zone) is timezone and zone.tzname(None) != timezone(offset).tzname(None):
        raise CodecError(
            f"the time zone name {zone.tzname(None)!r} cannot be stored; use zoneinfo.ZoneInfo or a plain offset",
            path=path,
        )


def _read_map(wire: list[list[Any]]) -> dict[Any, Any]:
    mapping = {key: value for key, value in wire}  # noqa: C416 - unpacking rejects what is not a pair
    if len(mapping) != len(wire):
        raise ValueError("holds a key twice")
    return mapping


def _read_set(wire: list[Any]) -> set[Any]:
    if type(wire) is not list or len(found := set(wire)) != len(wire):
        raise ValueError("is not a list of distinct items")
    return found


def _read_tuple(wire: list[Any]) -> tuple[Any, ...]:
    if type(wire) is not list:
        raise ValueError("is not a list")
    return tuple(wire)


_WRITERS: Final[dict[type, Callable[[Any, str], tuple[str, str | int] | None]]] = {
    float: _write_float,
    datetime: _write_datetime,
    date: lambda value, _: ("date", value.isoformat()),
    time: _write_time,
    timedelta: lambda value, _: ("timedelta", value // _MICROSECOND),
    bytes: lambda value, _: ("bytes", base64.b64encode(value).decode("ascii")),
    Decimal: lambda value, _: ("decimal", str(value)),
    UUID: lambda value, _: ("uuid", str(value)),
}

READERS: Final = MappingProxyType[str, Callable[[Any], object]](
    {
        "float": _read_float,
        "datetime": _read_datetime,
        "date": date.fromisoformat,
        "time": _read_time,
        "timedelta": lambda wire: timedelta(microseconds=wire),
        "bytes": lambda wire: base64.b64decode(wire, validate=True),
        "decimal": Decimal,
        "uuid": UUID,
        "tuple": _read_tuple,
        "set": _read_set,
        "frozenset": lambda wire: frozenset(_read_set(wire)),
        "map": _read_map,
    }
)
"""All tags, and how each is read."""
