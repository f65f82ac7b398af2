"""hold.memory: facts about entities, their sources, and how much confidence is left in them.

The rules are in holdfast.model.memory. Here a subject is read, the rules are applied, and the result is written if the
subject has not changed meanwhile. Otherwise the caller reads it again. No lock is held between the read and the write.
If several callers write at once, one of them always succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from typing import Literal

from holdfast.engine.runtime.services import Services
from holdfast.model.canonical import canonical
from holdfast.model.checks import check_name
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.memory import (
    DEFAULT_HALF_LIFE,
    FactConflict,
    Revision,
    Subject,
    best_first,
    conflicts_among,
    merge,
    state_fact,
    verify,
)
from holdfast.model.memory_document import from_document, to_document
from holdfast.model.records import MemoryFact
from holdfast.model.state_size import check_size
from holdfast.model.task import JsonValue
from holdfast.store.base import StateStore
from holdfast.store.checks import check_limit
from holdfast.store.facts import subject_of

HalfLife = float | timedelta | Literal["default"] | None
"""Seconds or a timedelta; None: the confidence never decays; "default": that of ``hold.memory``."""

MEMORY_BYTES = 64_000
"""The largest value of one fact, as JSON."""

MOST_FACTS = 10_000
"""How many facts of an entity, the newest ones, are read for an answer."""


class Memory:
    """Entity/attribute/value facts, stored beside the tasks and shared by all users of the store."""

    def __init__(self, services: Callable[[], Services]) -> None:
        """Only Holdfast creates this; ``services`` returns the services at the time of a call."""
        self._services = services
        self.half_life: float | timedelta | None = DEFAULT_HALF_LIFE
        """The half-life of facts that are stored without one: a timedelta or seconds; None: they never decay."""

    @property
    def _store(self) -> StateStore:
        return self._services().store

    async def store(
        self,
        entity: str,
        attribute: str,
        value: JsonValue,
        *,
        confidence: float = 1.0,
        source: str = "user",
        half_life: HalfLife = "default",
    ) -> MemoryFact:
        """Store that ``source`` states this fact, and return the fact that is valid now.

        A value that is known already counts as stated again. Another value supersedes the earlier facts of this source,
        and is in conflict with the facts of other sources. ``half_life`` is the time in which the confidence halves.
        """
        check_size(f"the fact {entity!r} {attribute!r}", canonical(value, name="value").decode(), MEMORY_BYTES)
        stated = MemoryFact(
            entity=entity,
            attribute=attribute,
            value=value,
            confidence=confidence,
            source=source,
            half_life=self._span(half_life),
        )
        return await self._state(stated)

    async def relate(
        self,
        entity: str,
        relation: str,
        other: str,
        *,
        confidence: float = 1.0,
        source: str = "user",
        half_life: HalfLife = "default",
    ) -> MemoryFact:
        """Store that an entity is related to another: ``relate("alice", "knows", "bob")``.

        A relation is a fact whose value is the other entity's name. An entity may have any number of them.
        """
        stated = MemoryFact(
            entity=entity,
            attribute=relation,
            value=other,
            confidence=confidence,
            source=source,
            half_life=self._span(half_life),
            relation=True,
        )
        return await self._state(stated)

    async def recall(self, entity: str, attribute: str | None = None, *, limit: int = 100) -> list[MemoryFact]:
        """Return the live facts about an entity, including relations that begin there, best first.

        The best fact has the most confidence left; among equals, it was stated or verified last.
        """
        check_limit(limit)
        found = await self._store.recall(entity, attribute, live=True, limit=MOST_FACTS)
        return best_first(found, self._services().time.now())[:limit]

    async def search(self, text: str, *, limit: int = 20) -> list[MemoryFact]:
        """Return live facts that contain words of ``text``, most words first. The beginning of a word also matches."""
        return await self._store.search(text, limit=limit)

    async def relations(self, entity: str, *, limit: int = 100) -> list[MemoryFact]:
        """Return the relations that begin or end at an entity, best first."""
        check_limit(limit)
        found = await self._store.recall(entity, live=True, limit=MOST_FACTS)
        found += await self._store.recall(other=entity, live=True, limit=MOST_FACTS)
        relations = {fact.id: fact for fact in found if fact.relation}  # a relation to the same entity was found twice
        return best_first(relations.values(), self._services().time.now())[:limit]

    async def verify(self, fact_id: str, *, by: str) -> MemoryFact:
        """Confirm a fact: its decay starts again from now, and all other facts about its subject are superseded.

        A superseded fact becomes live again. Raises NotFound.
        """
        check_name("verifier", by)

        def decide(subject: Subject) -> Revision:
            found = subject.fact(fact_id)
            if found is None:
                raise NotFound("fact", fact_id)
            return verify(subject, found, by)

        return await self._revise(await self._found(fact_id), decide)

    async def conflicts(self, entity: str | None = None, *, limit: int = 100) -> list[FactConflict]:
        """Return the conflicts between sources, by entity and attribute."""
        check_limit(limit)
        found = await self._store.recall(entity, contested=True, limit=MOST_FACTS)
        return conflicts_among(found, self._services().time.now())[:limit]

    async def history(self, entity: str, attribute: str) -> list[MemoryFact]:
        """Return all facts that were ever stored about it, including superseded ones, oldest first."""
        return (await self._store.recall(entity, attribute, limit=MOST_FACTS))[::-1]

    async def forget(self, fact_id: str) -> bool:
        """Delete a fact for good; return whether there was one. Facts that it superseded stay superseded."""
        return await self._store.forget(fact_id)

    async def export(self) -> dict[str, JsonValue]:
        """Return all facts as one JSON document, oldest first."""
        facts: list[MemoryFact] = []
        while page := await self._store.recall(after=facts[-1] if facts else None, limit=MOST_FACTS):
            facts += page
        return to_document(reversed(facts))

    async def import_(self, document: JsonValue) -> int:
        """Import the facts of an exported document; return how many were new here.

        A malformed document is rejected before anything is stored. Facts with a known id stay as they are, so an import
        can be repeated. If two facts cannot both be live, the fresher one is.
        """
        new = 0
        facts = sorted(from_document(document), key=subject_of)
        for _, group in groupby(facts, key=subject_of):
            new += await self._import_subject(list(group))
        return new

    async def _import_subject(self, facts: list[MemoryFact]) -> int:
        ids = {fact.id for fact in facts}
        while True:
            seen = await self._subject(facts[0], *ids)
            changed = merge(seen, facts)
            if await self._write(changed, seen):
                return sum(seen.fact(fact_id) is None for fact_id in ids)

    async def _state(self, stated: MemoryFact) -> MemoryFact:
        return await self._revise(stated, lambda subject: state_fact(subject, stated))

    async def _revise(self, about: MemoryFact, decide: Callable[[Subject], Revision]) -> MemoryFact:
        """Apply a decision to the subject of a fact. If another caller writes first, read and decide again."""
        while True:
            seen = await self._subject(about, about.id)
            revision = decide(seen)
            if await self._write(revision.changed, seen):
                return revision.stands

    async def _subject(self, about: MemoryFact, *also: str) -> Subject:
        return await self._store.subject(about.entity, about.attribute, other=about.other, also=also)

    async def _write(self, changed: tuple[MemoryFact, ...], seen: Subject) -> bool:
        """Write the changed facts. Return False if another caller changed the subject meanwhile."""
        try:
            if changed:
                await self._store.remember(*changed, seen=seen)
        except Conflict:
            return False
        return True

    async def _found(self, fact_id: str) -> MemoryFact:
        fact = await self._store.fact(fact_id)
        if fact is None:
            raise NotFound("fact", fact_id)
        return fact

    def _span(self, half_life: HalfLife) -> timedelta | None:
        chosen = self.half_life if half_life == "default" else half_life
        if chosen is None or isinstance(chosen, timedelta):
            return chosen
        try:
            return timedelta(seconds=as_seconds(chosen, what="half_life"))
        except OverflowError:
            raise InvalidValue(f"half_life is {chosen!r} seconds; give None for a fact that never decays") from None
