"""Memory: rules for storing, verifying and importing facts, and how confidence fades. No I/O.

A *subject* is one attribute of one entity; for a relation, one attribute of one entity towards one other. The live
facts of a subject have different values and different sources:

* A known value is not stored a second time. If its own source repeats it, the fact is fresh again, with the new
  confidence. If another source repeats it, the same happens, unless the new confidence is below what is left of the
  fact's confidence: another source never makes a fact weaker.
* Another value of the same source supersedes the earlier value of that source. Superseded facts are kept.
* Another value of another source is a conflict. Both facts are live until a source changes its value or a user verifies
  one.

A decision made here is written only if the subject has not changed since it was read (``StateStore.remember``);
otherwise it is made again. So the rules hold with any number of writers, and all stores share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.model.canonical import canonical
from holdfast.model.errors import InvalidValue
from holdfast.model.records import MemoryFact

DEFAULT_HALF_LIFE = timedelta(days=30)

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a store holds about one subject, at one moment."""

    entity: str
    attribute: str
    other: str | None = None
    """The other entity, if it is a relation."""
    mark: str | None
    """Changes with the subject; None while there are no facts about it."""
    at: datetime
    """The store's time of the read."""
    facts: tuple[MemoryFact, ...] = ()
    """The live facts, and those requested by id."""

    @property
    def live(self) -> tuple[MemoryFact, ...]:
        """The facts that are not superseded."""
        return tuple(fact for fact in self.facts if fact.is_live)

    def fact(self, fact_id: str) -> MemoryFact | None:
        """Return the fact with this id, if it is among those that were read."""
        return next((fact for fact in self.facts if fact.id == fact_id), None)


@dataclass(frozen=True, slots=True)
class Revision:
    """The decided change of a subject."""

    stands: MemoryFact
    """The fact in question, as it is afterwards."""
    changed: tuple[MemoryFact, ...]
    """All facts to write; empty if nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactConflict:
    """Sources that do not agree. It ends when one of the facts is verified, or a source changes its value."""

    entity: str
    attribute: str
    facts: tuple[MemoryFact, ...]
    """The fact of each source, the best first."""


def effective_confidence(fact: MemoryFact, now: datetime) -> float:
    """Return what is left of a fact's confidence: it halves with every half-life since ``freshness``."""
    if fact.half_life is None:
        return fact.confidence
    age = max(timedelta(0), now - freshness(fact))
    return float(fact.confidence * 0.5 ** (age / fact.half_life))


def freshness(fact: MemoryFact) -> datetime:
    """Return when the fact was last stated or verified."""
    at = fact.verified_at or fact.created_at
    if at is None:
        raise InvalidValue(f"fact {fact.id} has no age yet; store it, and use the fact that is returned")
    return at


def best_first(facts: Iterable[MemoryFact], now: datetime) -> list[MemoryFact]:
    """Order facts by what is left of their confidence; of two equal facts, the fresher one comes first."""
    return sorted(facts, key=lambda fact: (effective_confidence(fact, now), freshness(fact), fact.id), reverse=True)


def state_fact(subject: Subject, stated: MemoryFact) -> Revision:
    """Decide the change of a subject when a source states a fact about it."""
    if (known := subject.fact(stated.id)) is not None:
        return Revision(known, ())  # stored before, by a call whose answer was lost
    live, same = subject.live, _same_value(subject.live, stated)
    outdated = [fact for fact in live if fact.source == stated.source and fact is not same]
    if same is None:
        stands = replace(stated, created_at=_later_than(outdated, subject.at))
    else:
        stands = _stated_again(same, stated, subject.at)
    changed = [] if stands is same else [stands]
    return Revision(stands, (*changed, *_superseded(outdated, stands)))


def verify(subject: Subject, fact: MemoryFact, by: str) -> Revision:
    """Decide the change of a subject when ``by`` verifies one of its facts, live or superseded."""
    stands = replace(fact, verified_at=subject.at, verified_by=by, superseded_by=None)
    others = [other for other in subject.live if other.id != fact.id]
    return Revision(stands, (stands, *_superseded(others, stands)))


def merge(subject: Subject, incoming: Iterable[MemoryFact]) -> tuple[MemoryFact, ...]:
    """Decide which facts to write when facts are imported into a subject; a fact whose id it has stays unchanged.

    If two live facts exclude each other, the fresher one stays live, and the other is kept as superseded.
    """
    live = {fact.id: fact for fact in subject.live}
    changed: dict[str, MemoryFact] = {}
    for fact in sorted(incoming, key=_age):
        if subject.fact(fact.id) is not None:
            continue
        changed[fact.id] = fact
        if not fact.is_live:
            continue
        rivals = [rival for rival in live.values() if rival.source == fact.source or _is_same(rival, fact)]
        fresher = [rival for rival in rivals if _age(rival) > _age(fact)]
        if fresher:
            # Older values of the same source are superseded, even if another source still states them.
            replaced = [rival for rival in rivals if rival.source == fact.source and rival not in fresher]
            changed[fact.id] = replace(fact, superseded_by=max(fresher, key=_age).id)
        else:
            replaced = rivals
            live[fact.id] = fact
        for loser in _superseded(replaced, fact):
            changed[loser.id] = loser
            del live[loser.id]
    return tuple(changed.values())


def conflicts_among(facts: Iterable[MemoryFact], now: datetime) -> list[FactConflict]:
    """Group live facts by subject, and return the groups in which sources do not agree."""
    groups: dict[tuple[str, str], list[MemoryFact]] = {}
    for fact in facts:
        if fact.is_live and not fact.relation:
            groups.setdefault((fact.entity, fact.attribute), []).append(fact)
    return [
        FactConflict(entity=entity, attribute=attribute, facts=tuple(best_first(group, now)))
        for (entity, attribute), group in sorted(groups.items())
        if len(group) > 1
    ]


def _stated_again(fact: MemoryFact, stated: MemoryFact, now: datetime) -> MemoryFact:
    again = replace(
        fact, confidence=stated.confidence, half_life=stated.half_life, verified_at=now, verified_by=stated.source
    )
    if stated.source == fact.source:
        return again
    if stated.confidence < effective_confidence(fact, now):
        return fact
    return replace(again, half_life=_longer(fact.half_life, stated.half_life))


def _longer(one: timedelta | None, other: timedelta | None) -> timedelta | None:
    return None if one is None or other is None else max(one, other)


def _later_than(outdated: Iterable[MemoryFact], now: datetime) -> datetime:
    """Return now, or a moment after the superseded facts, so that their order survives a clock that is set back."""
    return max([now, *(fact.created_at + _TICK for fact in outdated if fact.created_at is not None)])


def _superseded(facts: Iterable[MemoryFact], by: MemoryFact) -> list[MemoryFact]:
    return [replace(fact, superseded_by=by.id) for fact in facts]


def _same_value(facts: Iterable[MemoryFact], stated: MemoryFact) -> MemoryFact | None:
    return next((fact for fact in facts if _is_same(fact, stated)), None)


def _is_same(one: MemoryFact, other: MemoryFact) -> bool:
    """Compare as JSON: in Python, 1 equals True."""
    return canonical(one.value) == canonical(other.value)


def _age(fact: MemoryFact) -> tuple[datetime, str]:
    return freshness(fact), fact.id
