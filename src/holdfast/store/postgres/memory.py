"""Memory: the facts, and changing a subject as it was seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

import msgspec

from holdfast.model.canonical import canonical
from holdfast.model.ids import new_id
from holdfast.model.memory import Subject
from holdfast.model.records import MemoryFact
from holdfast.model.task import JsonValue
from holdfast.model.words import fact_words, query_words
from holdfast.store.checks import check_limit
from holdfast.store.facts import check_facts, half_life_micros, subject_changed, subject_of
from holdfast.store.postgres.listings import facts_query
from holdfast.store.postgres.parameters import ByteaArray, TextArray
from holdfast.store.postgres.queries import Reading
from holdfast.store.postgres.rows import RECORDS

_to_json = msgspec.json.Encoder().encode


class Remembering(Reading):
    """See Keeping."""

    async def remember(self, *facts: MemoryFact, seen: Subject | None = None) -> list[MemoryFact]:
        """See Keeping."""
        check_facts(facts, seen)
        rows = _to_json([_row(fact) for fact in facts]).decode()
        values = ByteaArray(canonical(fact.value, name="value") for fact in facts)
        found = await self._fetch(
            "remember",
            *subject_of(facts[0]),
            *("any", None) if seen is None else ("seen", seen.mark),
            *(new_id(), rows, values, self._at()),
        )
        if not found:
            raise subject_changed(facts[0])
        dates: dict[str, datetime] = dict(found)
        return [replace(fact, created_at=dates[fact.id]) for fact in facts]

    async def fact(self, fact_id: str) -> MemoryFact | None:
        """See Keeping."""
        found = await self._fetch("fact", fact_id)
        return RECORDS.fact(found[0]) if found else None

    async def subject(
        self, entity: str, attribute: str, *, other: str | None = None, also: Collection[str] = ()
    ) -> Subject:
        """See Keeping."""
        found = await self._fetch("subject", entity, attribute, other or "", TextArray(also), self._at())
        at, mark = found[0][:2]
        facts = tuple(RECORDS.fact(row[2:]) for row in found if row[2] is not None)
        return Subject(entity=entity, attribute=attribute, other=other, mark=mark, at=at, facts=facts)

    async def recall(
        self,
        entity: str | None = None,
        attribute: str | None = None,
        *,
        other: str | None = None,
        live: bool = False,
        contested: bool = False,
        after: MemoryFact | None = None,
        limit: int = 100,
    ) -> list[MemoryFact]:
        """See Keeping."""
        check_limit(limit)
        query = facts_query(
            entity=entity, attribute=attribute, other=other, live=live, contested=contested, after=after, limit=limit
        )
        return [RECORDS.fact(row) for row in await self._list(query)]

    async def search(self, text: str, *, limit: int = 100) -> list[MemoryFact]:
        """See Keeping."""
        patterns = [pattern for word in query_words(text) for pattern in (f"'{word}':*", f"'{word}'")]
        return [RECORDS.fact(row) for row in await self._fetch("search", TextArray(patterns), check_limit(limit))]

    async def forget(self, fact_id: str) -> bool:
        """See Keeping."""
        [(forgotten,)] = await self._fetch("forget", fact_id, new_id())
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
