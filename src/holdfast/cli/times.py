"""Times as people read them: local, and how long ago."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from holdfast.model.deadline import LONGEST
from holdfast.model.errors import InvalidValue

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(w|d|h|m|s)")
_SECONDS = {"w": 604_800, **dict(_UNITS)}
_A_DAY = timedelta(days=1)
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
"""Beyond these, systems differ in how they convert local time."""


def span(seconds: float) -> str:
    """Return a length of time, by its two largest units: ``3h 5m``, ``12s``, ``0.4s``."""
    if seconds < 10:  # noqa: PLR2004 - where a tenth still matters
        return f"{max(0.0, seconds):.1f}s"
    parts: list[str] = []
    left = round(seconds)
    for unit, size in _UNITS:
        if left >= size or (parts and unit != "d"):
            count, left = divmod(left, size)
            if count or not parts:
                parts.append(f"{count}{unit}")
        if len(parts) == 2 or (parts and size == 1):  # noqa: PLR2004
            break
    return " ".join(parts)


def age(at: datetime | None, now: datetime) -> str:
    """Return how long ago a moment was, or how long it is still ahead."""
    if at is None:
        return ""
    seconds = (now - at).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def local(at: datetime | None, now: datetime) -> str:
    """Return a moment in the local time zone: only the time if it is about today."""
    if at is None:
        return ""
    shown = at.astimezone()
    return f"{shown:%H:%M:%S}" if abs(now - at) < _A_DAY else f"{shown:%Y-%m-%d %H:%M}"


def local_with_age(at: datetime | None, now: datetime) -> str:
    """Return both: ``14:03:22 (5m 2s ago)``."""
    return "" if at is None else f"{local(at, now)} ({age(at, now)})"


def read_span(text: str, *, what: str, needs_unit: bool = False) -> timedelta:
    """Read a length of time as people type it: ``30d``, ``2h30m``, ``45s``; a bare number counts seconds.

    ``needs_unit`` refuses the bare number: where the user may mean 30 days, and a mistake cannot be undone.
    """
    compact = text.strip().lower()
    seconds = _with_units(compact)
    if seconds is None and not needs_unit:
        seconds = _bare(compact)
    if seconds is None:
        remedy = "write it with a unit" if needs_unit else "write seconds, or a number with a unit"
        raise InvalidValue(f"{what} is {text!r}; {remedy}, as 30d, 12h, 2h30m or 45s")
    if seconds > LONGEST:
        raise InvalidValue(f"{what} is {text!r}; a thousand years are the most")
    return timedelta(seconds=seconds)


def read_seconds(text: str, *, what: str) -> float:
    """Read a length of time, as ``read_span`` does, in seconds."""
    return read_span(text, what=what).total_seconds()


def read_time(text: str, *, what: str) -> datetime:
    """Read a moment that the user plans: in ISO form, with its zone, because the store may stand in another one."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(f"{what} is {text!r}; write a moment such as 2026-12-01T07:00:00+01:00") from None
    if given.utcoffset() is None:
        raise InvalidValue(f"{what} is {text!r}, which has no time zone; add it, as in {text}+01:00 or {text}Z")
    return given


def _with_units(compact: str) -> float | None:
    parts = _PART.findall(compact)
    if not parts or _PART.sub("", compact).strip():
        return None
    return sum(float(count) * _SECONDS[unit] for count, unit in parts)


def _bare(compact: str) -> float | None:
    try:
        seconds = float(compact)
    except ValueError:
        return None
    return None if math.isnan(seconds) or seconds < 0 else seconds


def read_moment(text: str, now: datetime, *, what: str) -> datetime:
    """Read a moment: a span means that long ago; anything else is a date and time in ISO form, local without a zone."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - read_span(text, what=what, needs_unit=True)  # a bare 2026 may be meant as a year
        except InvalidValue:
            raise InvalidValue(f"{what} is {text!r}; write 2h, 3d or a date such as 2026-11-15T14:00") from None
    if not _FIRST_YEAR <= given.year <= _LAST_YEAR:
        raise InvalidValue(f"{what} is {text!r}; choose a year from {_FIRST_YEAR} to {_LAST_YEAR}")
    return (given if given.tzinfo else given.astimezone()).astimezone(UTC)
