"""Memory: facts about entities, newest first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.records import MemoryFact
from holdfast.store.base import StateStore
from holdfast.testing.contract.base import ContractBase


def fact(fact_id: str = "fact", entity: str = "alice", attribute: str = "likes", **options: Any) -> MemoryFact:  # noqa: ANN401 - the fields of MemoryFact
    """Describe a fact."""
    return MemoryFact(**{"id": fact_id, "entity": entity, "attribute": attribute, "value": "tea"} | options)


class MemoryContract(ContractBase):
    """remember, recall, forget."""

    async def test_a_fact_is_stored_as_it_was_given(self, store: StateStore, clock: ManualClock) -> None:
        """Every field; dated now unless it says otherwise."""
        whole = fact(
            "whole",
            value={"drink": ["tea", None]},
            confidence=0.1,
            source="a conversation",
            created_at=clock.now() - timedelta(days=1),
            verified_at=clock.now(),
            superseded_by="other",
        )
        plain = fact("plain")
        assert await store.remember(whole) == whole
        assert await store.remember(plain) == replace(plain, created_at=clock.now())
        assert await store.recall() == [replace(plain, created_at=clock.now()), whole]

    async def test_the_same_id_again_replaces(self, store: StateStore, clock: ManualClock) -> None:
        """All of it, the entity included."""
        await store.remember(fact(value="tea", verified_at=clock.now()))
        clock.advance(1)
        replaced = await store.remember(fact(entity="bob", value="coffee"))
        assert await store.recall() == [replaced]
        assert replaced == fact(entity="bob", value="coffee", created_at=clock.now())

    async def test_the_newest_comes_first(self, store: StateStore, clock: ManualClock) -> None:
        """Of the same moment, the higher id; up to a limit."""
        for fact_id in ("b", "a", "c"):
            await store.remember(fact(fact_id))
        clock.advance(1)
        await store.remember(fact("newest"))
        assert [found.id for found in await store.recall()] == ["newest", "c", "b", "a"]
        assert [found.id for found in await store.recall(limit=2)] == ["newest", "c"]

    async def test_facts_are_found_by_every_given_part(self, store: StateStore) -> None:
        """Entity, attribute, and text in any of entity, attribute and value."""
        await store.remember(fact("a", "alice", "likes", value="Green Tea"))
        await store.remember(fact("b", "alice", "hates", value={"food": "Straße"}))
        await store.remember(fact("c", "bob", "likes", value="alice"))

        async def found(*parts: str, **options: Any) -> list[str]:  # noqa: ANN401 - the arguments of the verb
            return sorted(each.id for each in await store.recall(*parts, **options))

        assert await found("alice") == ["a", "b"]
        assert await found(attribute="likes") == ["a", "c"]
        assert await found("alice", "likes") == ["a"]
        assert await found(text="ALICE") == ["a", "b", "c"]
        assert await found(text="green") == ["a"]
        assert await found(text="strasse") == ["b"]
        assert await found(text="hate") == ["b"]
        assert await found("bob", text="alice") == ["c"]
        assert await found("carol") == []
        assert await found(text="%") == []

    async def test_a_forgotten_fact_is_gone(self, store: StateStore) -> None:
        """The answer says whether there was one."""
        await store.remember(fact())
        assert await store.forget("fact") is True
        assert await store.forget("fact") is False
        assert await store.recall() == []

    @pytest.mark.parametrize("field", ["fact_id", "entity", "attribute"])
    async def test_fact_names_no_store_could_hold_are_refused(self, field: str) -> None:
        """Before they reach any store."""
        for bad in ("", "a\x00b", "x" * 201):
            with pytest.raises(InvalidValue):
                fact(**{field: bad})
