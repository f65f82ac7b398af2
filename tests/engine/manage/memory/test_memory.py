"""hold.memory on every kind of store."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidValue, ManualClock, MemoryFact, NotFound, StoreClosed
from holdfast.engine.manage.memory import Memory
from holdfast.model.memory import DEFAULT_HALF_LIFE, effective_confidence

DAY = timedelta(days=1)


def values(facts: list[MemoryFact]) -> list[Any]:
    return [fact.value for fact in facts]


async def test_what_is_stored_is_recalled(hold: Holdfast, clock: ManualClock) -> None:
    stored = await hold.memory.store("alice", "likes", {"drink": "tea"}, confidence=0.5, source="chat", half_life=60)
    assert stored == MemoryFact(
        id=stored.id,
        entity="alice",
        attribute="likes",
        value={"drink": "tea"},
        confidence=0.5,
        source="chat",
        half_life=timedelta(minutes=1),
        created_at=clock.now(),
    )
    assert await hold.memory.recall("alice") == await hold.memory.recall("alice", "likes") == [stored]
    assert await hold.memory.recall("alice", "hates") == await hold.memory.recall("bob") == []


async def test_the_same_value_again_refreshes_the_fact(hold: Holdfast, clock: ManualClock) -> None:
    first = await hold.memory.store("alice", "likes", "tea")
    clock.advance(DAY.total_seconds())
    again = await hold.memory.store("alice", "likes", "tea")
    assert (again.id, again.created_at, again.verified_at) == (first.id, first.created_at, clock.now())
    assert await hold.memory.history("alice", "likes") == [again]


async def test_a_source_that_changes_its_mind_supersedes_itself(hold: Holdfast) -> None:
    said = [await hold.memory.store("alice", "likes", value) for value in ("tea", "coffee", "water", "tea")]
    assert values(await hold.memory.recall("alice")) == ["tea"]
    history = await hold.memory.history("alice", "likes")
    assert [fact.id for fact in history] == [fact.id for fact in said]
    assert [fact.superseded_by for fact in history] == [*(fact.id for fact in said[1:]), None]
    assert await hold.memory.conflicts() == []
    assert values(await hold.memory.search("coffee")) == []


async def test_another_source_is_a_conflict_until_it_is_settled(hold: Holdfast, clock: ManualClock) -> None:
    tea = await hold.memory.store("alice", "likes", "tea", source="bob", confidence=0.9)
    clock.advance(1)
    coffee = await hold.memory.store("alice", "likes", "coffee", source="carol", confidence=0.4)
    await hold.memory.store("dave", "likes", "water", source="bob")
    [conflict] = await hold.memory.conflicts()
    assert (conflict.entity, conflict.attribute, conflict.facts) == ("alice", "likes", (tea, coffee))
    assert await hold.memory.conflicts("dave") == []
    clock.advance(DAY.total_seconds())

    verified = await hold.memory.verify(coffee.id, by="alice")
    assert (verified.verified_at, verified.verified_by, verified.confidence) == (clock.now(), "alice", 0.4)
    assert await hold.memory.conflicts() == []
    assert await hold.memory.recall("alice") == [verified]
    assert [fact.superseded_by for fact in await hold.memory.history("alice", "likes")] == [coffee.id, None]

    again = await hold.memory.verify(tea.id, by="alice")
    assert await hold.memory.recall("alice") == [again]


async def test_a_conflict_is_over_when_a_source_comes_round(hold: Holdfast) -> None:
    await hold.memory.store("alice", "likes", "tea", source="bob")
    coffee = await hold.memory.store("alice", "likes", "coffee", source="carol")
    assert (await hold.memory.store("alice", "likes", "coffee", source="bob")).id == coffee.id
    assert await hold.memory.conflicts() == []


async def test_the_surest_is_recalled_first_as_of_now(hold: Holdfast, clock: ManualClock) -> None:
    await hold.memory.store("alice", "likes", "tea", half_life=DAY)
    await hold.memory.store("alice", "lives in", "Oslo", confidence=0.6, half_life=None)
    assert values(await hold.memory.recall("alice")) == ["tea", "Oslo"]
    assert values(await hold.memory.recall("alice", limit=1)) == ["tea"]
    clock.advance(DAY.total_seconds())
    assert values(await hold.memory.recall("alice")) == ["Oslo", "tea"]
    await hold.memory.store("alice", "likes", "tea", half_life=DAY)
    assert values(await hold.memory.recall("alice")) == ["tea", "Oslo"]


async def test_half_lives_have_a_default(hold: Holdfast) -> None:
    memory = hold.memory
    assert memory is hold.memory
    assert (await memory.store("a", "b", 1)).half_life == DEFAULT_HALF_LIFE
    memory.half_life = 60
    assert (await memory.store("a", "c", 1)).half_life == timedelta(minutes=1)
    assert (await memory.relate("a", "d", "e")).half_life == timedelta(minutes=1)
    memory.half_life = None
    fact = await memory.store("a", "f", 1)
    assert fact.half_life is None
    assert effective_confidence(fact, fact.created_at + 9999 * DAY) == 1.0 if fact.created_at else False
    assert (await memory.store("a", "g", 1, half_life=DAY)).half_life == DAY


async def test_relations_are_seen_from_both_ends(hold: Holdfast) -> None:
    bob = await hold.memory.relate("alice", "knows", "bob", confidence=0.9)
    carol = await hold.memory.relate("alice", "knows", "carol", confidence=0.8)
    back = await hold.memory.relate("bob", "works for", "alice", confidence=0.7)
    self_made = await hold.memory.relate("alice", "employs", "alice", confidence=0.6)
    await hold.memory.store("alice", "knows", "dave")
    await hold.memory.store("carol", "likes", "alice")
    assert await hold.memory.relations("alice") == [bob, carol, back, self_made]
    assert await hold.memory.relations("bob") == [bob, back]
    assert await hold.memory.relations("alice", limit=1) == [bob]
    assert await hold.memory.relations("dave") == []
    assert await hold.memory.conflicts() == []
    assert len(await hold.memory.recall("alice")) == 4
    assert (bob.other, bob.value, bob.relation) == ("bob", "bob", True)


async def test_a_relation_that_is_known_is_refreshed(hold: Holdfast, clock: ManualClock) -> None:
    first = await hold.memory.relate("alice", "knows", "bob")
    clock.advance(1)
    again = await hold.memory.relate("alice", "knows", "bob", source="bob")
    assert (again.id, again.verified_by) == (first.id, "bob")
    await hold.memory.relate("alice", "knows", "carol")
    await hold.memory.verify(first.id, by="bob")
    assert len(await hold.memory.relations("alice")) == 2
    assert await hold.memory.forget(first.id) is True
    assert values(await hold.memory.relations("alice")) == ["carol"]


async def test_facts_are_searched(hold: Holdfast) -> None:
    await hold.memory.store("alice", "likes", "green tea")
    await hold.memory.store("bob", "likes", "teamwork")
    await hold.memory.store("carol", "lives in", "Århus")
    assert values(await hold.memory.search("green TEA")) == ["green tea", "teamwork"]
    assert values(await hold.memory.search("arh")) == ["Århus"]
    assert len(await hold.memory.search("likes", limit=1)) == 1
    assert await hold.memory.search('" OR * NEAR(') == []


async def test_what_is_forgotten_is_gone_and_brings_nothing_back(hold: Holdfast) -> None:
    await hold.memory.store("alice", "likes", "tea")
    coffee = await hold.memory.store("alice", "likes", "coffee")
    assert await hold.memory.forget(coffee.id) is True
    assert await hold.memory.forget(coffee.id) is False
    assert await hold.memory.recall("alice") == []
    assert values(await hold.memory.history("alice", "likes")) == ["tea"]
    with pytest.raises(NotFound):
        await hold.memory.verify(coffee.id, by="bob")


async def test_mistakes_are_refused(hold: Holdfast) -> None:
    memory: Any = hold.memory
    for wrong in (
        memory.store("", "likes", "tea"),
        memory.store("alice", "likes", object()),
        memory.store("alice", "likes", "tea", confidence=2),
        memory.store("alice", "likes", "tea", half_life="long"),
        memory.store("alice", "likes", "tea", half_life=0),
        memory.store("alice", "likes", "tea", half_life=1e300),
        memory.relate("alice", "knows", ""),
        memory.relate("alice", "knows", ["bob"]),
        memory.verify("x", by=""),
        memory.recall("alice", limit=0),
        memory.search("tea", limit=0),
        memory.import_({"format": "holdfast-memory", "version": 1, "facts": [{}]}),
    ):
        with pytest.raises(InvalidValue):
            await wrong
    with pytest.raises(NotFound):
        await memory.verify("unknown", by="bob")
    assert await memory.export() == {"format": "holdfast-memory", "version": 1, "facts": []}


async def test_memory_needs_an_open_store() -> None:
    hold = Holdfast("memory://")
    hold.memory.half_life = None
    with pytest.raises(StoreClosed):
        await hold.memory.recall("alice")


# There and back


async def fill(memory: Memory, clock: ManualClock) -> None:
    await memory.store("alice", "likes", "tea", confidence=0.1)
    clock.advance(1)
    tea = await memory.store("alice", "likes", {"drink": ["coffee", None]}, half_life=DAY)
    clock.advance(1)
    await memory.verify(tea.id, by="bob")
    await memory.store("alice", "likes", 1, source="bob")
    await memory.relate("alice", "knows", "bob", half_life=None)
    await memory.relate("alice", "knows", "carol")


async def test_a_memory_can_be_carried_elsewhere_exactly(hold: Holdfast, clock: ManualClock, tmp_path: Path) -> None:
    await fill(hold.memory, clock)
    document = await hold.memory.export()
    assert len(document["facts"]) == 5
    carried = json.loads(json.dumps(document))
    async with Holdfast(f"sqlite:///{tmp_path}/elsewhere.db", clock=clock) as elsewhere:
        assert await elsewhere.memory.import_(carried) == 5
        assert await elsewhere.memory.export() == document
        assert await elsewhere.memory.import_(carried) == 0
        assert await elsewhere.memory.export() == document
        assert await elsewhere.memory.recall("alice") == await hold.memory.recall("alice")
        assert await elsewhere.memory.search("coffee") == await hold.memory.search("coffee")
        assert await elsewhere.memory.conflicts() == await hold.memory.conflicts()
    assert await hold.memory.import_(document) == 0


async def test_an_import_undoes_nothing_that_happened_since(hold: Holdfast, clock: ManualClock) -> None:
    tea = await hold.memory.store("alice", "likes", "tea")
    document = await hold.memory.export()
    clock.advance(1)
    await hold.memory.store("alice", "likes", "coffee")
    assert await hold.memory.import_(document) == 0
    assert values(await hold.memory.recall("alice")) == ["coffee"]
    await hold.memory.forget(tea.id)
    assert await hold.memory.import_(document) == 1
    assert values(await hold.memory.recall("alice")) == ["coffee"]
    assert values(await hold.memory.history("alice", "likes")) == ["tea", "coffee"]


async def test_a_document_that_is_wrong_anywhere_brings_in_nothing(hold: Holdfast, clock: ManualClock) -> None:
    await fill(hold.memory, clock)
    document = await hold.memory.export()
    for fact in document["facts"]:
        await hold.memory.forget(fact["id"])
    document["facts"][-1]["confidence"] = 7
    with pytest.raises(InvalidValue, match=r"memory\.facts\[4\]\.confidence"):
        await hold.memory.import_(document)
    assert (await hold.memory.export())["facts"] == []


async def test_an_export_goes_on_where_a_page_ends(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.manage.memory.MOST_FACTS", 3)
    for number in range(7):
        await hold.memory.store("alice", f"a{number}", number)
    assert sorted(fact["value"] for fact in (await hold.memory.export())["facts"]) == list(range(7))


async def test_json_files_hold_the_memory(clock: ManualClock, tmp_path: Path) -> None:
    """Also the words, which are not in the files."""
    async with Holdfast(f"json:///{tmp_path}/hold", clock=clock) as hold:
        await fill(hold.memory, clock)
        before, found = await hold.memory.export(), await hold.memory.search("coffee bob")
        mark = (await hold.store.subject("alice", "likes")).mark
    assert found
    async with Holdfast(f"json:///{tmp_path}/hold", clock=clock) as hold:
        assert await hold.memory.export() == before
        assert await hold.memory.search("coffee bob") == found
        assert (await hold.store.subject("alice", "likes")).mark == mark is not None
        again = await hold.memory.store("alice", "likes", 1, source="bob")
        assert again.verified_at is not None


# Many at once


async def test_the_same_from_many_is_one_fact(hold: Holdfast) -> None:
    stored = await asyncio.gather(*(hold.memory.store("alice", "likes", "tea", source=f"s{n % 3}") for n in range(20)))
    assert len({fact.id for fact in stored}) == 1
    assert len(await hold.memory.history("alice", "likes")) == 1


async def test_many_words_of_one_source_are_all_kept_in_order(hold: Holdfast) -> None:
    await asyncio.gather(*(hold.memory.store("alice", "likes", n) for n in range(20)))
    history = await hold.memory.history("alice", "likes")
    assert sorted(values(history)) == list(range(20))
    assert [fact.superseded_by for fact in history] == [*(fact.id for fact in history[1:]), None]


async def test_of_two_who_verify_at_once_the_last_one_is_right(hold: Holdfast) -> None:
    facts = [await hold.memory.store("alice", "likes", n, source=f"s{n}") for n in range(6)]
    await asyncio.gather(*(hold.memory.verify(fact.id, by="bob") for fact in facts))
    assert len(await hold.memory.recall("alice")) == 1
    assert await hold.memory.conflicts() == []
