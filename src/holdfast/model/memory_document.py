"""Memory as one JSON document, for a backup or an import into another store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from holdfast.model.canonical import check_json
from holdfast.model.errors import InvalidValue
from holdfast.model.json_object import JsonObject, without_none
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.records import MemoryFact
from holdfast.model.task import JsonValue

FORMAT: Final = "holdfast-memory"
VERSION: Final = 1

_FIELDS: Final = (
    *("id", "entity", "attribute", "value", "relation", "confidence", "half_life", "source"),
    *("created_at", "verified_at", "verified_by", "superseded_by"),
)


def to_document(facts: Iterable[MemoryFact]) -> dict[str, JsonValue]:
    """Return the document that holds these facts, in this order."""
    return {"format": FORMAT, "version": VERSION, "facts": [_to_json(fact) for fact in facts]}


def from_document(document: JsonValue) -> list[MemoryFact]:
    """Return the facts of a document; InvalidValue names the path of what is wrong."""
    read = JsonObject(document, "memory", ("format", "version", "facts"))
    if read.text("format") != FORMAT:
        raise InvalidValue(f"{read.path('format')}: {read.text('format')!r} is not a memory; expected {FORMAT!r}")
    if (version := read.integer("version")) != VERSION:
        raise InvalidValue(
            f"{read.path('version')}: this version of Holdfast reads {VERSION}, not {version}; upgrade Holdfast"
        )
    read.raw("facts")
    facts = read.items("facts", _from_json)
    first_with: dict[str, int] = {}
    for index, fact in enumerate(facts):
        if (first := first_with.setdefault(fact.id, index)) != index:
            raise InvalidValue(f"memory.facts[{index}].id: {fact.id!r} is the id of memory.facts[{first}] already")
    return list(facts)


def _to_json(fact: MemoryFact) -> dict[str, JsonValue]:
    return {
        "id": fact.id,
        "entity": fact.entity,
        "attribute": fact.attribute,
        "value": fact.value,
        "confidence": fact.confidence,
        "source": fact.source,
    } | without_none(
        {
            "relation": fact.relation or None,
            "half_life": fact.half_life and fact.half_life.total_seconds(),
            "created_at": fact.created_at and fact.created_at.isoformat(),
            "verified_at": fact.verified_at and fact.verified_at.isoformat(),
            "verified_by": fact.verified_by,
            "superseded_by": fact.superseded_by,
        }
    )


def _from_json(value: JsonValue, path: str) -> MemoryFact:
    read = JsonObject(value, path, _FIELDS)
    read.raw("created_at")
    read.raw("confidence")
    check_json(read.raw("value"), DEFAULT_LIMITS, read.path("value"))
    fields = {
        "entity": read.text("entity"),
        "attribute": read.text("attribute"),
        "value": read.raw("value"),
        "id": read.text("id"),
        "confidence": read.optional_fraction("confidence"),
        "source": read.text("source"),
        "created_at": read.optional_moment("created_at"),
        "verified_at": read.optional_moment("verified_at"),
        "verified_by": read.optional_text("verified_by"),
        "superseded_by": read.optional_text("superseded_by"),
        "half_life": _half_life(read),
        "relation": _relation(read),
    }
    try:
        return MemoryFact(**fields)
    except InvalidValue as error:
        raise InvalidValue(f"{path}: {error}") from error


def _half_life(read: JsonObject) -> timedelta | None:
    if "half_life" not in read:
        return None
    seconds = read.raw("half_life")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise InvalidValue(f"{read.path('half_life')}: expected a number of seconds, not {seconds!r}")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise InvalidValue(f"{read.path('half_life')}: {seconds!r} seconds are too many; omit it for never") from None


def _relation(read: JsonObject) -> bool:
    value = read.raw("relation") if "relation" in read else False
    if not isinstance(value, bool):
        raise InvalidValue(f"{read.path('relation')}: expected true or false, not {value!r}")
    return value
