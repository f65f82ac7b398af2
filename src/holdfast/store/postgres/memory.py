"""Memory: the facts, and changing a subject as it was seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from holdfast.model.canonical import canonical
from holdfast.model.ids import new_id
from holdfast.model.memory import Subject
from holdfast.model.records import MemoryFact
from holdfast.model.task import JsonValue
from holdfast.model.words import fact_words, query_words
from holdfast.store.facts import half_life_micros, subject_changed, subject_of
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.listings import facts_query
from holdfast.store.postgres.parameters import ByteaArray, TextArray
from holdfast.store.postgres.records import RECORDS

_to_json = msgspec.json.Encoder().encode


async def remember(db: Database, facts: Sequence[MemoryFact], seen: Subject | None) -> list[MemoryFact]:
    """See KeepVerbs."""
    rows = _to_json([_row(fact) for fact in facts]).decode()
    values = ByteaArray(canonical(fact.value, name="value") for fact in facts)
    found = await db.fetch(
        "remember",
        *subject_of(facts[0]),
        *("any", None) if seen is None else ("seen", seen.mark),
        *(new_id(), rows, values, db.at()),
    )
    if not found:
        raise subject_changed(facts[0])
    dates: dict[str, datetime] = dict(found)
    return [replace(fact, created_at=dates[fact.id]) for fact in facts]


async def fact(db: Database, fact_id: str) -> MemoryFact | None:
    """See KeepVerbs."""
    return await db.first(RECORDS.fact, "fact", fact_id)


async def subject(db: Database, entity: str, attribute: str, other: str | None, also: Collection[str]) -> Subject:
    """See KeepVerbs."""
    found = await db.fetch("subject", entity, attribute, other or "", TextArray(also), db.at())
    at, mark, *_ = found[0]
    facts = tuple(RECORDS.fact(*fact) for _, _, *fact in found if fact[0] is not None)
    return Subject(entity=entity, attribute=attribute, other=other, mark=mark, at=at, facts=facts)


async def recall(
    db: Database,
    entity: str | None,
    attribute: str | None,
    other: str | None,
    *,
    live: bool,
    contested: bool,
    after: MemoryFact | None,
    limit: int,
) -> list[MemoryFact]:
    """See KeepVerbs."""
    listing = facts_query(
        entity=entity, attribute=attribute, other=other, live=live, contested=contested, after=after, limit=limit
    )
    return await db.select(RECORDS.fact, listing)


async def search(db: Database, text: str, limit: int) -> list[MemoryFact]:
    """See KeepVerbs."""
    patterns = [pattern for word in query_words(text) for pattern in (f"'{word}':*", f"'{word}'")]
    return await db.all(RECORDS.fact, "search", TextArray(patterns), limit)


async def forget(db: Database, fact_id: str) -> bool:
    """See KeepVerbs."""
    [(forgotten,)] = await db.fetch("forget", fact_id, new_id())
    return bool(forgotten)


def _row(fact: MemoryFact) -> dict[str, JsonValue]:
    """Return what stands in a row of ``facts`` beside its subject and its value."""
    return {
        "id": fact.id,
        "confidence": fact.confidence,
        "half_life": half_life_micros(fact),
        "source": fact.source,
        "created_at": fact.created_at,
        "verified_at": fact.verified_at,
        "verified_by": fact.verified_by,
        "superseded_by": fact.superseded_by,
        "words": fact_words(fact),
    }
