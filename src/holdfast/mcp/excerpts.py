"""Keeping answers small: a model reads them, and its context is limited.

An answer that is too long is cut at its longest parts. The cut is marked, with where to find the rest. What the reader
needs to go on is never cut: a lease, an id, a cursor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from holdfast.model.task import JsonValue

MAX_ANSWER: Final = 16_000
"""Characters of a tool's answer."""

MAX_RESOURCE: Final = 200_000
"""Characters of a resource that is JSON. More than for a tool's answer: the reader asked for exactly this resource."""

KEPT: Final = frozenset(
    {
        "agent_id",
        "artifact_id",
        "done",
        "error",
        "kind",
        "lease",
        "lease_seconds",
        "next",
        "next_cursor",
        "question_id",
        "replayed",
        "state",
        "task_id",
        "uri",
        "version",
    }
)
"""Names of what is never cut, nor left out."""

_LIMITS: Final = (8000, 2000, 500, 120, 40)
"""Limits of a text's length, tried until the answer fits; each also limits the items of a list or an object."""

_FEWEST: Final = 3
_LONGEST_KEPT: Final = 1000
"""Characters of a value that is not cut: longer than any id or lease, and too short to fill a model's context."""


def text_of(value: JsonValue) -> str:
    """Return plain data as text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fitted(value: dict[str, JsonValue], room: int = MAX_ANSWER, *, rest: str = "") -> dict[str, JsonValue]:
    """Return an object that fits; one that had to be cut has a note, and where the ``rest`` is."""
    if len(text_of(value)) <= room:
        return value
    note = f"cut to fit{f'; the rest is at {rest}' if rest else ''}"
    for limit in _LIMITS:
        cut = {**_cut(value, limit), "truncated": note}
        if len(text_of(cut)) <= room:
            return cut
    return {
        **_bare(value),
        "truncated": f"{len(text_of(value))} characters do not fit{f'; read {rest}' if rest else ''}",
    }


def packed(items: Iterable[dict[str, JsonValue]], room: int) -> list[dict[str, JsonValue]]:
    """Return as many items as fit, from the first on; always the first one, cut if it has to be."""
    kept: list[dict[str, JsonValue]] = []
    for item in items:
        one = item if kept else fitted(item, room)
        size = len(text_of(one)) + 1
        if kept and size > room:
            break
        kept.append(one)
        room -= size
    return kept


def shortened(text: str, limit: int) -> str:
    """Return a text, or its beginning and how much is missing."""
    return text if len(text) <= limit else f"{text[:limit]}... [{len(text) - limit} more characters]"


def shortened_value(value: JsonValue, limit: int) -> JsonValue:
    """Return plain data as it is, or as the beginning of its text."""
    text = text_of(value)
    return value if len(text) <= limit else shortened(text, limit)


def _cut(value: JsonValue, limit: int) -> JsonValue:
    match value:
        case str():
            return shortened(value, limit)
        case list():
            most = max(_FEWEST, limit // 100)
            kept = [_cut(item, limit) for item in value[:most]]
            return kept if len(value) <= most else [*kept, f"[{len(value) - most} more]"]
        case dict():
            return _cut_object(value, limit)
    return value


def _cut_object(value: dict[str, JsonValue], limit: int) -> dict[str, JsonValue]:
    most = max(_FEWEST, limit // 20)
    others = [name for name in value if name not in KEPT]
    shown = KEPT.union(others[:most])
    cut = {
        shortened(name, limit): _cut(item, _LONGEST_KEPT if name in KEPT else limit)
        for name, item in value.items()
        if name in shown
    }
    return cut if len(others) <= most else {**cut, "...": f"[{len(others) - most} more]"}


def _bare(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return only what is never left out, and the objects that hold such things."""
    bare = {name: _cut(item, _LONGEST_KEPT) for name, item in value.items() if name in KEPT and _is_small(item)}
    inside = {name: _bare(item) for name, item in value.items() if isinstance(item, dict)}
    return bare | {name: held for name, held in inside.items() if held}


def _is_small(value: JsonValue) -> bool:
    return not isinstance(value, list | dict)
