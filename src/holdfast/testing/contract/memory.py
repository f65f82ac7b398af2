"""Memory: facts, stored only if their subject is unchanged, listed, searched and forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import Conflict, InvalidValue, StoreClosed
from holdfast.model.memory import Subject
from holdfast.model.records import MemoryFact
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import row
from holdfast.testing.contract.base import ContractBase

AS_SYNTAX = (
    *('"', '"tea', "tea OR", "AND", "NEAR(tea, 2)", "tea*", "^tea", "words:tea", "-tea", "(tea", "{tea} : x", "tea + "),
    *("tea & !coffee", "'tea':*", "tea | ", "tea <-> x", "!", "\\", "'", "tea\x00", "\ud800 tea", "%", "_", "", "  "),
)
"""Text that could break some query language."""


def fact(fact_id: str = "fact", entity: str = "alice", attribute: str = "likes", **options: Any) -> MemoryFact:  # noqa: ANN401 - the fields of MemoryFact
    """Describe a fact."""
    return MemoryFact(**{"id": fact_id, "entity": entity, "attribute": attribute, "value": "tea"} | options)


def relation(fact_id: str, entity: str, attribute: str, other: str, **options: Any) -> MemoryFact:  # noqa: ANN401 - as above
    """Describe a relation."""
    return fact(fact_id, entity, attribute, value=other, relation=True, **options)


def ids(facts: list[MemoryFact] | tuple[MemoryFact, ...]) -> list[str]:
    """Return the ids, in the order of the answer."""
    return [each.id for each in facts]


class MemoryContract(ContractBase):
    """remember, fact, subject, recall, search, forget."""

    async def test_a_fact_is_stored_as_it_was_given(self, store: StateStore, clock: ManualClock) -> None:
        """Every field; its date is now unless it has one."""
        whole = fact(
            "whole",
            value={"drink": ["tea", None]},
            confidence=0.1,
            source="a conversation",
            created_at=clock.now() - timedelta(days=1),
            verified_at=clock.now(),
            verified_by="bob",
            superseded_by="other",
            half_life=timedelta(days=30, microseconds=1),
        )
        plain = fact("plain")
        related = relation("related", "alice", "likes", "bob", created_at=clock.now() - timedelta(days=2))
        assert await store.remember(whole) == [whole]
        assert await store.remember(plain) == [replace(plain, created_at=clock.now())]
        assert await store.remember(related) == [related]
        assert await store.recall() == [replace(plain, created_at=clock.now()), whole, related]
        assert await store.fact("whole") == whole
        assert await store.fact("related") == related
        assert await store.fact("unknown") is None

    async def test_a_fact_with_the_same_id_is_replaced(self, store: StateStore, clock: ManualClock) -> None:
        """All of it except its subject."""
        await store.remember(fact(value="tea", verified_at=clock.now(), superseded_by="x"))
        clock.advance(1)
        replaced = await store.remember(fact(value="coffee"))
        assert await store.recall() == replaced == [fact(value="coffee", created_at=clock.now())]
        assert await store.search("tea") == []
        assert await store.search("coffee") == replaced
        again = await store.remember(fact(value="water"))
        assert await store.search("coffee") == []
        assert await store.search("water") == again

    @pytest.mark.parametrize(
        "foreign", [fact("taken", "bob"), fact("taken", attribute="hates"), relation("taken", "alice", "likes", "tea")]
    )
    async def test_a_fact_never_changes_what_it_is_about(self, store: StateStore, foreign: MemoryFact) -> None:
        """Nothing of the call is stored, and the subject counts as unchanged."""
        [stored] = await store.remember(fact("taken"))
        seen = await store.subject(foreign.entity, foreign.attribute, other=foreign.other)
        with pytest.raises(InvalidValue, match="taken"):
            await store.remember(replace(foreign, id="new"), foreign, seen=seen)
        assert await store.recall() == [stored]
        assert await store.subject(foreign.entity, foreign.attribute, other=foreign.other) == seen

    async def test_facts_of_a_subject_are_stored_together(self, store: StateStore, clock: ManualClock) -> None:
        """In the order of the call."""
        both = await store.remember(fact("b"), fact("a", value="coffee"))
        assert both == [fact("b", created_at=clock.now()), fact("a", value="coffee", created_at=clock.now())]

    async def test_what_is_no_change_of_one_subject_is_refused(self, store: StateStore) -> None:
        """No fact, facts of two subjects, the same id twice, or another subject than the one that was read."""
        seen = await store.subject("bob", "likes")
        for facts in ((), (fact("a"), fact("b", "bob")), (fact("a"), fact("a"))):
            with pytest.raises(InvalidValue):
                await store.remember(*facts)
        with pytest.raises(InvalidValue):
            await store.remember(fact(), seen=seen)
        with pytest.raises(InvalidValue):
            await store.remember(fact("good", value=1), fact("bad", value=object()))
        assert await store.recall() == []

    async def test_a_subject_is_read_as_it_stands(self, store: StateStore, clock: ManualClock) -> None:
        """Its live facts, oldest first, and the requested ones; nothing of any other subject."""
        assert await store.subject("alice", "likes", also=["fact"]) == Subject(
            entity="alice", attribute="likes", mark=None, at=clock.now()
        )
        for stored in (
            fact("b"),
            fact("a"),
            fact("old", superseded_by="a", created_at=clock.now() - timedelta(days=1)),
            fact("older", superseded_by="old"),
            fact("hated", attribute="hates"),
            fact("of bob", "bob"),
        ):
            await store.remember(stored)
        await store.remember(relation("related", "alice", "likes", "bob"))
        subject = await store.subject("alice", "likes")
        assert (subject.entity, subject.attribute, subject.other) == ("alice", "likes", None)
        assert ids(subject.facts) == ["a", "b"]
        also = await store.subject("alice", "likes", also=["old", "a", "hated", "of bob", "related", "unknown"])
        assert ids(also.facts) == ["old", "a", "b"]
        assert also.mark == subject.mark
        towards_bob = await store.subject("alice", "likes", other="bob")
        assert (ids(towards_bob.facts), towards_bob.other) == (["related"], "bob")

    async def test_who_was_slower_stores_nothing(self, store: StateStore) -> None:
        """For every change that came first: store, replace, or forget."""
        empty = await store.subject("alice", "likes")
        await store.remember(fact("first"), seen=empty)
        with pytest.raises(Conflict):
            await store.remember(fact("second"), seen=empty)
        seen = await store.subject("alice", "likes")
        await store.remember(fact("first", confidence=0.5), seen=seen)
        with pytest.raises(Conflict):
            await store.remember(fact("second"), seen=seen)
        seen = await store.subject("alice", "likes")
        await store.remember(fact("old", value="water", superseded_by="first"))
        with pytest.raises(Conflict):
            await store.remember(fact("second"), seen=seen)
        seen = await store.subject("alice", "likes")
        await store.forget("old")
        with pytest.raises(Conflict):
            await store.remember(fact("second"), seen=seen)
        seen = await store.subject("alice", "likes")
        await store.remember(fact("second"), seen=seen)
        assert ids(await store.recall()) == ["second", "first"]

    async def test_a_subject_that_was_forgotten_is_not_the_one_that_was_seen(self, store: StateStore) -> None:
        """Even if it looks the same again."""
        empty = await store.subject("alice", "likes")
        [first] = await store.remember(fact("first"))
        seen = await store.subject("alice", "likes")
        await store.forget("first")
        with pytest.raises(Conflict):
            await store.remember(fact("second"), seen=seen)
        assert (await store.subject("alice", "likes")).mark is None
        await store.remember(first)
        with pytest.raises(Conflict):
            await store.remember(fact("second"), seen=seen)
        await store.forget("first")
        await store.remember(fact("second"), seen=empty)

    async def test_subjects_do_not_disturb_each_other(self, store: StateStore) -> None:
        """Another attribute, another entity, another end of a relation."""
        seen = await store.subject("alice", "knows", other="bob")
        await store.remember(relation("b", "alice", "knows", "carol"))
        await store.remember(fact("c", "alice", "knows", value="bob"))
        await store.remember(fact("d", "alice", "likes"))
        await store.remember(fact("e", "bob", "knows"))
        assert ids(await store.remember(relation("a", "alice", "knows", "bob"), seen=seen)) == ["a"]

    async def test_of_many_at_once_one_is_first(self, store: StateStore) -> None:
        """All of them read the same subject."""
        seen = await store.subject("alice", "likes")
        answers = await asyncio.gather(
            *(store.remember(fact(f"f{n}"), seen=seen) for n in range(8)), return_exceptions=True
        )
        assert [type(answer) for answer in answers if not isinstance(answer, list)] == [Conflict] * 7
        assert len(await store.recall()) == 1

    async def test_the_newest_comes_first(self, store: StateStore, clock: ManualClock) -> None:
        """At the same moment, the higher id; up to a limit; and continued from any fact."""
        for fact_id in ("b", "a", "c"):
            await store.remember(fact(fact_id))
        clock.advance(1)
        await store.remember(fact("newest"))
        everything = await store.recall()
        assert ids(everything) == ["newest", "c", "b", "a"]
        assert ids(await store.recall(limit=2)) == ["newest", "c"]
        assert ids(await store.recall(limit=2, after=everything[1])) == ["b", "a"]
        assert await store.recall(after=everything[3]) == []

    async def test_facts_are_listed_by_every_given_part(self, store: StateStore) -> None:
        """Entity, attribute, the other end of a relation, whether they are live."""
        await store.remember(fact("a", "alice", "likes"))
        await store.remember(fact("b", "alice", "hates", superseded_by="a"))
        await store.remember(fact("c", "bob", "likes", value="alice"))
        await store.remember(relation("d", "bob", "knows", "alice"))
        await store.remember(relation("e", "carol", "knows", "alice", superseded_by="d"))

        async def found(*parts: str, **options: Any) -> list[str]:  # noqa: ANN401 - the arguments of the verb
            return sorted(ids(await store.recall(*parts, **options)))

        assert await found("alice") == ["a", "b"]
        assert await found("alice", live=True) == ["a"]
        assert await found(attribute="likes") == ["a", "c"]
        assert await found("alice", "likes") == ["a"]
        assert await found(other="alice") == ["d", "e"]
        assert await found(other="alice", live=True) == ["d"]
        assert await found("bob", other="alice") == ["d"]
        assert await found("dave") == []
        assert await found(other="") == []

    async def test_contested_facts_are_listed(self, store: StateStore) -> None:
        """Live facts that are not alone on their subject; superseded facts and relations do not count."""
        await store.remember(fact("a", value=1), fact("b", value=2), fact("old", value=3, superseded_by="a"))
        await store.remember(fact("c", "bob", value=1), fact("past", "bob", value=2, superseded_by="c"))
        await store.remember(relation("d", "carol", "likes", "alice"))
        await store.remember(relation("e", "carol", "likes", "bob"))
        await store.remember(fact("f", "carol", "likes", value="tea"))
        assert sorted(ids(await store.recall(contested=True))) == ["a", "b"]
        assert await store.recall("bob", contested=True) == []

    async def test_facts_are_found_by_their_words(self, store: StateStore) -> None:
        """In entity, attribute and value, also by their beginnings, without case or accents."""
        await store.remember(fact("a", "Alice", "likes", value="Green Tea"))
        await store.remember(fact("b", "bob", "hates", value={"food": ["Straße", {"café_noir": 42}], "never": None}))
        await store.remember(relation("c", "carol", "knows", "Alice"))
        await store.remember(fact("d", "नमस्ते", "名前", value="東京都"))

        async def found(text: str) -> list[str]:
            return sorted(ids(await store.search(text)))

        assert await found("ALICE") == ["a", "c"]
        assert await found("gree") == ["a"]
        assert await found("een") == []
        assert await found("likes") == ["a"]
        assert await found("STRASSE") == ["b"]
        assert await found("Cafe") == ["b"]
        assert await found("noir") == ["b"]
        assert await found("cafe\u0301") == ["b"]
        assert await found("42") == ["b"]
        assert await found("none") == []
        assert await found("नमस्") == ["d"]
        assert await found("名") == ["d"]
        assert await found("東京") == ["d"]
        assert await found("alice bob") == ["a", "b", "c"]

    async def test_the_best_match_comes_first(self, store: StateStore, clock: ManualClock) -> None:
        """More words first, whole words before beginnings, then the freshest, then the higher id."""
        now = clock.now()
        await store.remember(fact("team", "x", "a", value="team"))
        await store.remember(fact("tea", "x", "b", value="tea"))
        await store.remember(fact("both", "x", "c", value="green team"))
        await store.remember(fact("fresher", "x", "d", value="tea", created_at=now - timedelta(1), verified_at=now))
        await store.remember(fact("older", "x", "e", value="tea", created_at=now - timedelta(1)))
        assert ids(await store.search("green tea")) == ["both", "tea", "fresher", "older", "team"]
        assert ids(await store.search("green tea", limit=2)) == ["both", "tea"]
        assert ids(await store.search("tea tea TEA")) == ["tea", "fresher", "older", "team", "both"]

    async def test_only_live_facts_are_found(self, store: StateStore) -> None:
        """A superseded fact is not found until it is live again."""
        await store.remember(fact("past", value="tea time", superseded_by="fact"))
        assert await store.search("tea") == []
        [known] = await store.remember(fact())
        assert await store.search("tea") == [known]
        await store.remember(replace(known, superseded_by="x"))
        assert await store.search("tea") == []
        await store.remember(replace(known, superseded_by="y"))
        assert await store.search("tea") == []
        await store.remember(known)
        assert await store.search("tea") == [known]
        await store.forget("fact")
        assert await store.search("tea") == []

    async def test_nothing_in_a_searched_text_is_syntax(self, store: StateStore) -> None:
        """It finds what has the same words, or nothing."""
        [known] = await store.remember(fact())
        for text in AS_SYNTAX:
            with row(repr(text)):
                assert await store.search(text) == ([known] if "tea" in text else [])

    async def test_parts_of_unspaced_texts_and_emoji_are_found(self, store: StateStore) -> None:
        """In a script without spaces, any part of a text may be a word."""
        texts = {
            "japanese": "日本語のテキスト 検索",
            "chinese": "数据库磁盘已满",
            "korean": "한국어 데이터베이스에",
            "thai": "ภาษาไทย",
            "emoji": "a party \U0001f389\U0001f680",
            "family": "\U0001f469\u200d\U0001f467 \u2764\ufe0f \U0001f44d\U0001f3fd",
            "plain": "a party",
        }
        for name, text in texts.items():
            await store.remember(fact(name, entity=name, value=text))
        for wanted, names in {
            "本語": ["japanese"],
            "語": ["japanese"],
            "テキスト": ["japanese"],
            "日本語のテキスト": ["japanese"],
            "本日": [],
            "磁盘": ["chinese"],
            "已满": ["chinese"],
            "数据库磁盘已满": ["chinese"],
            "베이스": ["korean"],
            "ไทย": ["thai"],
            "\U0001f389": ["emoji"],
            "\U0001f680": ["emoji"],
            "\U0001f467": ["family"],
            "\U0001f469\u200d\U0001f467": ["family"],
            "\u2764": ["family"],
            "\U0001f44d\U0001f3fb": ["family"],
            "\U0001f4a5": [],
        }.items():
            assert ids(await store.search(wanted)) == names, wanted

    @pytest.mark.parametrize("in_one", [True, False], ids=["one text", "many texts"])
    async def test_long_texts_are_found_by_their_beginning(self, store: StateStore, *, in_one: bool) -> None:
        """For words, values and search texts of any length."""
        words = ["begin", "x" * 5000, *(f"word{n}" for n in range(200_000))]
        [known] = await store.remember(fact(value=" ".join(words) if in_one else words))
        for text in ("begin", "x" * 4000, "x" * 9000, "word7", "begin " * 100_000):
            assert await store.search(text) == [known], text[:20]
        assert await store.search("word199999") == []

    async def test_a_forgotten_fact_is_gone(self, store: StateStore) -> None:
        """The answer is whether there was a fact."""
        await store.remember(fact())
        assert await store.forget("fact") is True
        assert await store.forget("fact") is False
        assert await store.recall() == []
        assert await store.fact("fact") is None

    async def test_a_closed_store_remembers_nothing(self, store: StateStore) -> None:
        """It raises StoreClosed."""
        await store.close()
        for call in (store.fact("fact"), store.subject("alice", "likes"), store.search("tea")):
            with pytest.raises(StoreClosed):
                await call

    @pytest.mark.parametrize("field", ["fact_id", "entity", "attribute"])
    async def test_fact_names_no_store_could_hold_are_refused(self, field: str) -> None:
        """Before they reach any store."""
        for bad in ("", "a\x00b", "x" * 201):
            with pytest.raises(InvalidValue):
                fact(**{field: bad})
