"""hold.memory: facts about entities, who said them, and how sure one may still be of them.

The rules are in holdfast.model.memory. Here a subject is read, the rules say what becomes of it, and that is written if
it is still as it was read; whoever was slower reads it again. No lock is held while anybody thinks, and of any number
who write at once there is always one who gets on.
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
    say,
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
"""Seconds or a timedelta; None: never; "default": that of ``hold.memory``."""

MEMORY_BYTES = 64_000
"""Of the value of one fact, as JSON."""

MOST_FACTS = 10_000
"""How many facts of an entity, the newest ones, are looked at for an answer."""


class Memory:
    """Entity/attribute/value facts, kept beside the tasks and shared by all who use the store."""

    def __init__(self, services: Callable[[], Services]) -> None:
        """Made by Holdfast; ``services`` are those of the time of a call."""
        self._services = services
        self.half_life: float | timedelta | None = DEFAULT_HALF_LIFE
        """What facts get that are stored without a half-life of their own: a timedelta or seconds; None: never."""

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
        """Store that ``source`` says this, and return the fact that stands for it now.

        A value that is known already counts as said again. Another value supersedes what this source said before, and
        is in conflict with what other sources say. ``half_life`` is the time in which the confidence halves.
        """
        check_size(f"the fact {entity!r} {attribute!r}", canonical(value, name="value").decode(), MEMORY_BYTES)
        said = MemoryFact(
            entity=entity,
            attribute=attribute,
            value=value,
            confidence=confidence,
            source=source,
            half_life=self._span(half_life),
        )
        return await self._say(said)

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

        A relation is a fact whose value is the other entity's name. Any number of them may stand side by side.
        """
        said = MemoryFact(
            entity=entity,
            attribute=relation,
            value=other,
            confidence=confidence,
            source=source,
            half_life=self._span(half_life),
            relation=True,
        )
        return await self._say(said)

    async def recall(self, entity: str, attribute: str | None = None, *, limit: int = 100) -> list[MemoryFact]:
        """Return what stands about an entity, relations that begin there included, best first.

        Best is what most confidence is left of, then what was said or verified last.
        """
        check_limit(limit)
        found = await self._store.recall(entity, attribute, live=True, limit=MOST_FACTS)
        return best_first(found, self._services().time.now())[:limit]

    async def search(self, text: str, *, limit: int = 20) -> list[MemoryFact]:
        """Return live facts with words of ``text``, those with the most of them first; beginnings of words count."""
        return await self._store.search(text, limit=limit)

    async def relations(self, entity: str, *, limit: int = 100) -> list[MemoryFact]:
        """Return the relations that begin or end at an entity, best first."""
        check_limit(limit)
        found = await self._store.recall(entity, live=True, limit=MOST_FACTS)
        found += await self._store.recall(other=entity, live=True, limit=MOST_FACTS)
        relations = {fact.id: fact for fact in found if fact.relation}  # one that leads back was found twice
        return best_first(relations.values(), self._services().time.now())[:limit]

    async def verify(self, fact_id: str, *, by: str) -> MemoryFact:
        """Vouch for a fact: it is as good as new, and whatever else was said about its subject is superseded.

        A superseded fact lives again. Raises NotFound.
        """
        check_name("verifier", by)

        def decide(subject: Subject) -> Revision:
            found = subject.fact(fact_id)
            if found is None:
                raise NotFound("fact", fact_id)
            return verify(subject, found, by)

        return await self._revise(await self._found(fact_id), decide)

    async def conflicts(self, entity: str | None = None, *, limit: int = 100) -> list[FactConflict]:
        """Return where sources do not agree, by entity and attribute."""
        check_limit(limit)
        found = await self._store.recall(entity, contested=True, limit=MOST_FACTS)
        return conflicts_among(found, self._services().time.now())[:limit]

    async def history(self, entity: str, attribute: str) -> list[MemoryFact]:
        """Return all that was ever said, superseded facts included, oldest first."""
        return (await self._store.recall(entity, attribute, limit=MOST_FACTS))[::-1]

    async def forget(self, fact_id: str) -> bool:
        """Delete a fact for good; say whether there was one. What it superseded stays superseded."""
        return await self._store.forget(fact_id)

    async def export(self) -> dict[str, JsonValue]:
        """Return everything as one JSON document, oldest first."""
        facts: list[MemoryFact] = []
        while page := await self._store.recall(after=facts[-1] if facts else None, limit=MOST_FACTS):
            facts += page
        return to_document(reversed(facts))

    async def import_(self, document: JsonValue) -> int:
        """Bring in the facts of an exported document; return how many were new here.

        A malformed document is refused before anything is stored. Facts that are known by id stay as they are, so that
        an import can be repeated. Where two facts meet that cannot both stand, the fresher one does.
        """
        new = 0
        facts = sorted(from_document(document), key=subject_of)
        for _, group in groupby(facts, key=subject_of):
            new += await self._bring_in(list(group))
        return new

    async def _bring_in(self, facts: list[MemoryFact]) -> int:
        ids = {fact.id for fact in facts}
        while True:
            seen = await self._subject(facts[0], *ids)
            changed = merge(seen, facts)
            if await self._write(changed, seen):
                return sum(seen.fact(fact_id) is None for fact_id in ids)

    async def _say(self, said: MemoryFact) -> MemoryFact:
        return await self._revise(said, lambda subject: say(subject, said))

    async def _revise(self, about: MemoryFact, decide: Callable[[Subject], Revision]) -> MemoryFact:
        """Change the subject of a fact as the decision says, as often as it takes to be the first who does."""
        while True:
            seen = await self._subject(about, about.id)
            revision = decide(seen)
            if await self._write(revision.changed, seen):
                return revision.stands

    async def _subject(self, about: MemoryFact, *also: str) -> Subject:
        return await self._store.subject(about.entity, about.attribute, other=about.other, also=also)

    async def _write(self, changed: tuple[MemoryFact, ...], seen: Subject) -> bool:
        """Write what was decided; False: somebody was faster."""
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
