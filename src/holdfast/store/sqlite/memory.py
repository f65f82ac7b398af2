"""Memory: the facts, and changing a subject as it was seen."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from holdfast.model.canonical import canonical
from holdfast.model.ids import new_id
from holdfast.model.memory import Subject
from holdfast.model.records import MemoryFact
from holdfast.model.words import fact_words, query_words
from holdfast.store.facts import foreign_fact, half_life_micros, subject_changed, subject_of
from holdfast.store.records import Row
from holdfast.store.sqlite.listings import facts_query
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import micros_or_none, moment
from holdfast.store.sqlite.write_transaction import WriteTransaction


def remember(tx: WriteTransaction, facts: Sequence[MemoryFact], seen: Subject | None) -> list[MemoryFact]:
    """Store facts of one subject, if it is still as it was seen; return them with their dates."""
    subject = subject_of(facts[0])
    if seen is not None:
        found = tx.first("subject_mark", *subject)
        if (None if found is None else found[0]) != seen.mark:
            raise subject_changed(facts[0])
    tx.run("put_mark", *subject, new_id())
    dated = [replace(fact, created_at=fact.created_at or moment(tx.now)) for fact in facts]
    for fact in dated:
        if not tx.changes("put_fact", *_values(fact)):
            raise foreign_fact(fact.id)
    return dated


def forget(tx: WriteTransaction, fact_id: str) -> bool:
    """Delete the fact, and with the last one of its subject every trace of that."""
    row = tx.first("fact", fact_id)
    if row is None:
        return False
    subject = subject_of(RECORDS.fact(*row))
    tx.run("delete_fact", fact_id)
    tx.run("put_mark", *subject, new_id())
    tx.run("delete_mark", *subject)
    return True


def fact(reader: Reader, fact_id: str) -> MemoryFact | None:
    """See KeepVerbs."""
    return reader.first(RECORDS.fact, "fact", fact_id)


def subject(reader: Reader, entity: str, attribute: str, other: str | None, also: Collection[str]) -> Subject:
    """See KeepVerbs."""
    key = (entity, attribute, other or "")
    with reader.at_one_moment():
        mark = reader.first(str, "subject_mark", *key)
        facts = reader.all(RECORDS.fact, "subject_facts", *key, json.dumps(sorted(set(also))))
    facts.sort(key=lambda fact: (fact.created_at, fact.id))
    return Subject(entity=entity, attribute=attribute, other=other, mark=mark, at=reader.now(), facts=tuple(facts))


def recall(
    reader: Reader,
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
    return reader.select(RECORDS.fact, listing)


def search(reader: Reader, text: str, limit: int) -> list[MemoryFact]:
    """See KeepVerbs."""
    patterns = [pattern for word in query_words(text) for pattern in (f'"{word}"*', f'"{word}"')]
    return reader.all(RECORDS.fact, "search", json.dumps(patterns), limit)


def _values(fact: MemoryFact) -> Row:
    """Return a fact as a row of ``facts``."""
    return (
        fact.entity,
        fact.id,
        fact.attribute,
        fact.other or "",
        canonical(fact.value, name="value"),
        fact.confidence,
        half_life_micros(fact),
        fact.source,
        micros_or_none(fact.created_at),
        micros_or_none(fact.verified_at),
        fact.verified_by,
        fact.superseded_by,
        " ".join(fact_words(fact)),
    )
