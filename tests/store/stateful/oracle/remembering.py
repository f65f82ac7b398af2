"""Memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.model.errors import Conflict, InvalidValue
from holdfast.model.ids import new_id
from holdfast.model.memory import Subject
from holdfast.model.records import MemoryFact
from holdfast.model.words import fact_words, query_words
from tests.store.stateful.oracle.tables import SubjectKey, Tables


def remember(tables: Tables, facts: Sequence[MemoryFact], seen: Subject | None, now: datetime) -> list[MemoryFact]:
    key = _about(facts[0])
    if seen is not None and tables.marks.get(key) != seen.mark:
        raise Conflict(f"{key} has changed")
    if any(_about(tables.facts.get(fact.id, fact)) != key for fact in facts):
        raise InvalidValue(f"taken: one of {[fact.id for fact in facts]}")
    dated = [replace(fact, created_at=fact.created_at or now) for fact in facts]
    tables.facts.update({fact.id: fact for fact in dated})
    tables.marks[key] = new_id()
    return dated


def subject(tables: Tables, key: SubjectKey, also: Collection[str], now: datetime) -> Subject:
    facts = [
        fact
        for fact in tables.facts.values()
        if _about(fact) == key and (fact.superseded_by is None or fact.id in also)
    ]
    return Subject(
        entity=key[0],
        attribute=key[1],
        other=key[2],
        mark=tables.marks.get(key),
        at=now,
        facts=tuple(reversed(newest_first(facts, None))),
    )


def recall(
    tables: Tables, entity: str | None, attribute: str | None, other: str | None, *, live: bool, contested: bool
) -> list[MemoryFact]:
    return [
        fact
        for fact in tables.facts.values()
        if entity in {None, fact.entity}
        and attribute in {None, fact.attribute}
        and (other is None or fact.other == other)
        and (fact.superseded_by is None or not live)
        and (not contested or _is_contested(tables, fact))
    ]


def newest_first(facts: list[MemoryFact], after: MemoryFact | None) -> list[MemoryFact]:
    wanted = [fact for fact in facts if after is None or _age(fact) < _age(after)]
    return sorted(wanted, key=_age, reverse=True)


def search(tables: Tables, text: str) -> list[MemoryFact]:
    points: list[tuple[int, datetime, str]] = []
    for fact in tables.facts.values():
        words = fact_words(fact)
        found = sum(any(word.startswith(wanted) for word in words) + (wanted in words) for wanted in query_words(text))
        if found and fact.superseded_by is None:
            points.append((found, fact.verified_at or _age(fact)[0], fact.id))
    return [tables.facts[fact_id] for _, _, fact_id in sorted(points, reverse=True)]


def forget(tables: Tables, fact_id: str) -> bool:
    fact = tables.facts.pop(fact_id, None)
    if fact is None:
        return False
    key = _about(fact)
    tables.marks[key] = new_id()
    if all(_about(left) != key for left in tables.facts.values()):
        del tables.marks[key]
    return True


def _is_contested(tables: Tables, fact: MemoryFact) -> bool:
    live = [other for other in tables.facts.values() if _about(other) == _about(fact) and other.superseded_by is None]
    return not fact.relation and fact in live and len(live) > 1


def _about(fact: MemoryFact) -> SubjectKey:
    return fact.entity, fact.attribute, fact.other


def _age(fact: MemoryFact) -> tuple[datetime, str]:
    assert fact.created_at is not None
    return fact.created_at, fact.id
