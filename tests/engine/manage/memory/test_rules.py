"""The rules of memory, as laws: whatever is stated, verified and imported, in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.canonical import canonical
from holdfast.model.errors import InvalidValue
from holdfast.model.memory import (
    Subject,
    best_first,
    conflicts_among,
    effective_confidence,
    freshness,
    merge,
    state_fact,
    verify,
)
from holdfast.model.records import LONGEST_HALF_LIFE, MemoryFact

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)

spans = st.timedeltas(min_value=timedelta(microseconds=1), max_value=LONGEST_HALF_LIFE)
ages = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=365_000))
confidences = st.floats(0, 1)


def fact(value: object = "tea", source: str = "alice", **options: object) -> MemoryFact:
    fields: dict[str, object] = {"entity": "e", "attribute": "a", "value": value, "source": source} | options
    return MemoryFact(**fields)  # type: ignore[arg-type]


def subject(*facts: MemoryFact, at: datetime = NOW) -> Subject:
    return Subject(entity="e", attribute="a", mark="m", at=at, facts=facts)


@dataclass
class Store:
    """One subject, kept as a store keeps it."""

    at: datetime = NOW
    facts: dict[str, MemoryFact] = field(default_factory=dict)

    def seen(self) -> Subject:
        return subject(*self.facts.values(), at=self.at)

    def write(self, changed: tuple[MemoryFact, ...]) -> None:
        self.facts.update({fact.id: fact for fact in changed})

    @property
    def live(self) -> tuple[MemoryFact, ...]:
        return self.seen().live


# Decay


@given(confidences, st.none() | spans, ages, ages)
def test_confidence_never_grows_by_itself(
    confidence: float, half_life: timedelta | None, a: timedelta, b: timedelta
) -> None:
    known = fact(confidence=confidence, half_life=half_life, created_at=NOW)
    earlier, later = (effective_confidence(known, NOW + age) for age in sorted((a, b)))
    assert 0 <= later <= earlier <= confidence


@given(confidences, spans)
def test_confidence_halves_at_the_half_life(confidence: float, half_life: timedelta) -> None:
    known = fact(confidence=confidence, half_life=half_life, created_at=NOW)
    assert effective_confidence(known, NOW) == confidence
    assert effective_confidence(known, NOW + half_life) == confidence / 2
    assert effective_confidence(known, NOW + 2 * half_life) == confidence / 4


@given(confidences, ages)
def test_a_fact_without_a_half_life_does_not_decay(confidence: float, age: timedelta) -> None:
    assert effective_confidence(fact(confidence=confidence, created_at=NOW), NOW + age) == confidence


@given(confidences, spans, ages)
def test_verifying_resets_the_decay(confidence: float, half_life: timedelta, age: timedelta) -> None:
    known = fact(confidence=confidence, half_life=half_life, created_at=NOW)
    revision = verify(subject(known, at=NOW + age), known, "bob")
    assert effective_confidence(revision.stands, NOW + age) == confidence
    assert effective_confidence(revision.stands, NOW + age + half_life) == confidence / 2
    assert (revision.stands.verified_by, revision.stands.created_at) == ("bob", NOW)


def test_a_fact_from_the_future_gains_no_confidence() -> None:
    """Clocks are set back."""
    assert effective_confidence(fact(confidence=0.5, half_life=DAY, created_at=NOW + DAY), NOW) == 0.5


def test_the_age_of_a_fact_that_was_never_stored_is_not_guessed() -> None:
    with pytest.raises(InvalidValue, match="store it"):
        freshness(fact())


def test_the_best_come_first() -> None:
    certain = fact(1, created_at=NOW - DAY)
    fresher = fact(2, created_at=NOW - DAY, verified_at=NOW, half_life=DAY)
    faded = fact(3, created_at=NOW - DAY, half_life=DAY)
    assert best_first([faded, certain, fresher], NOW) == [fresher, certain, faded]
    assert best_first([faded, certain, fresher], NOW + DAY) == [certain, fresher, faded]


# Stating


def test_something_new_is_stored_as_said() -> None:
    said = fact(confidence=0.5, half_life=DAY)
    revision = state_fact(subject(), said)
    assert revision.changed == (revision.stands,) == (replace(said, created_at=NOW),)


def test_a_fact_stated_again_gets_the_new_time_and_confidence() -> None:
    known = fact(confidence=0.9, half_life=DAY, created_at=NOW - DAY)
    revision = state_fact(subject(known), fact(confidence=0.2, half_life=None))
    assert revision.stands == replace(
        known, confidence=0.2, half_life=None, verified_at=NOW, verified_by="alice", superseded_by=None
    )
    assert revision.changed == (revision.stands,)


def test_a_second_source_confirms_a_fact_and_its_source_stays() -> None:
    known = fact(confidence=0.9, half_life=2 * DAY, created_at=NOW - 4 * DAY)
    revision = state_fact(subject(known), fact(source="bob", confidence=0.3, half_life=DAY))
    assert revision.stands == replace(known, confidence=0.3, verified_at=NOW, verified_by="bob")


def test_another_source_that_is_less_sure_changes_nothing() -> None:
    known = fact(confidence=0.9, created_at=NOW)
    revision = state_fact(subject(known), fact(source="bob", confidence=0.89))
    assert (revision.stands, revision.changed) == (known, ())


@given(confidences, st.none() | spans, ages, confidences, st.none() | spans, ages)
def test_another_source_never_makes_a_fact_weaker(  # noqa: PLR0917 - six things are drawn
    confidence: float,
    half_life: timedelta | None,
    age: timedelta,
    other_confidence: float,
    other_half_life: timedelta | None,
    later: timedelta,
) -> None:
    known = fact(confidence=confidence, half_life=half_life, created_at=NOW)
    said = fact(source="bob", confidence=other_confidence, half_life=other_half_life)
    after = state_fact(subject(known, at=NOW + age), said).stands
    at = NOW + age + later
    assert effective_confidence(after, at) >= effective_confidence(known, at) * (1 - 1e-9)


def test_another_value_of_the_same_source_supersedes() -> None:
    known, other = fact("tea", created_at=NOW - DAY), fact("water", "bob", created_at=NOW)
    revision = state_fact(subject(known, other), fact("coffee"))
    assert revision.stands.value == "coffee"
    assert revision.changed == (revision.stands, replace(known, superseded_by=revision.stands.id))


def test_a_source_that_comes_round_gives_up_what_it_said() -> None:
    """Alice said tea and bob coffee; now alice says coffee too."""
    tea, coffee = fact("tea", created_at=NOW - DAY), fact("coffee", "bob", created_at=NOW - DAY)
    revision = state_fact(subject(tea, coffee), fact("coffee", "alice"))
    assert revision.stands.id == coffee.id
    assert {changed.id: changed.superseded_by for changed in revision.changed} == {coffee.id: None, tea.id: coffee.id}


def test_one_and_true_are_not_the_same_value() -> None:
    assert len(state_fact(subject(fact(1, created_at=NOW)), fact(value=True, source="bob")).changed) == 1
    assert state_fact(subject(fact(1, created_at=NOW)), fact(value=True, source="bob")).stands.value is True


def test_what_was_stored_by_a_call_whose_answer_was_lost_is_not_stored_again() -> None:
    stored = fact(created_at=NOW - DAY, superseded_by="another")
    assert state_fact(subject(stored), replace(stored, superseded_by=None)).changed == ()


def test_a_source_is_never_younger_than_what_it_said_later() -> None:
    """The clock was set back, or two facts are of one moment: their order stays."""
    known = fact("tea", created_at=NOW + DAY)
    stands = state_fact(subject(known), fact("coffee")).stands
    assert stands.created_at is not None
    assert stands.created_at > NOW + DAY


# Verifying


def test_verifying_settles_a_conflict() -> None:
    tea, coffee = fact("tea", created_at=NOW - DAY), fact("coffee", "bob", created_at=NOW)
    revision = verify(subject(tea, coffee), tea, "carol")
    assert revision.changed == (revision.stands, replace(coffee, superseded_by=tea.id))
    assert revision.stands.is_live


def test_a_superseded_fact_that_is_verified_lives_again() -> None:
    coffee = fact("coffee", created_at=NOW)
    tea = fact("tea", created_at=NOW - DAY, superseded_by=coffee.id)
    changed = {each.id: each.superseded_by for each in verify(subject(tea, coffee), tea, "carol").changed}
    assert changed == {tea.id: None, coffee.id: tea.id}


# Conflicts


def test_conflicts_are_live_facts_that_share_a_subject() -> None:
    tea, coffee = fact("tea", created_at=NOW - DAY), fact("coffee", "bob", created_at=NOW)
    alone = fact("x", attribute="b", created_at=NOW)
    over = fact("water", "carol", created_at=NOW, superseded_by=tea.id)
    one, other = (fact(name, attribute="knows", relation=True, created_at=NOW) for name in ("b", "c"))
    [conflict] = conflicts_among([alone, tea, over, coffee, one, other], NOW)
    assert (conflict.entity, conflict.attribute, conflict.facts) == ("e", "a", (coffee, tea))


# All of it together

SOURCES = ("alice", "bob", "carol")
VALUES = ("tea", "coffee", 1, True)
saying = st.tuples(st.just("say"), st.sampled_from(VALUES), st.sampled_from(SOURCES), confidences)
vouching = st.tuples(st.just("verify"), st.integers(0, 20))
passing = st.tuples(st.just("pass"), st.sampled_from([timedelta(0), DAY, -DAY]))
lives = st.lists(st.one_of(saying, saying, vouching, passing), max_size=20)


def live_through(life: list[tuple[object, ...]], store: Store | None = None) -> Store:
    store = store or Store()
    for happening in life:
        match happening:
            case ("say", value, str(source), float(confidence)):
                store.write(state_fact(store.seen(), fact(value, source, confidence=confidence, half_life=DAY)).changed)
            case ("verify", int(index)) if store.facts:
                chosen = list(store.facts.values())[index % len(store.facts)]
                store.write(verify(store.seen(), chosen, "dave").changed)
            case ("pass", timedelta() as span):
                store.at += span
    return store


def check(store: Store) -> None:
    live = store.live
    assert len({each.source for each in live}) == len(live)
    assert len({canonical(each.value) for each in live}) == len(live)
    assert bool(live) == bool(store.facts)
    for each in store.facts.values():
        seen = set()
        at: MemoryFact = each
        while at.superseded_by is not None:
            assert at.id not in seen, "superseded in a circle"
            seen.add(at.id)
            at = store.facts[at.superseded_by]


@given(lives)
def test_live_facts_have_different_values_and_different_sources(life: list[tuple[object, ...]]) -> None:
    check(live_through(life))


@given(lives, st.sampled_from(VALUES), st.sampled_from(SOURCES))
def test_what_was_just_said_stands(life: list[tuple[object, ...]], value: object, source: str) -> None:
    store = live_through([*life, ("say", value, source, 1.0)])
    [stands] = [each for each in store.live if canonical(each.value) == canonical(value)]
    assert all(each.source != source for each in store.live if each is not stands)
    assert effective_confidence(stands, store.at) == 1.0


@given(lives)
def test_a_memory_imported_into_an_empty_one_is_the_same(life: list[tuple[object, ...]]) -> None:
    here, there = live_through(life), Store()
    there.write(merge(there.seen(), here.facts.values()))
    assert there.facts == here.facts
    assert merge(there.seen(), here.facts.values()) == ()


@given(lives, lives)
def test_two_memories_that_meet_keep_everything_and_the_rules(
    one: list[tuple[object, ...]], other: list[tuple[object, ...]]
) -> None:
    here, there = live_through(one), live_through(other)
    before = dict(here.facts)
    here.write(merge(here.seen(), there.facts.values()))
    assert here.facts.keys() == before.keys() | there.facts.keys()
    check(here)
    assert merge(here.seen(), there.facts.values()) == ()
    for fact_id, old in before.items():
        assert replace(here.facts[fact_id], superseded_by=None) == replace(old, superseded_by=None)
        assert here.facts[fact_id].is_live <= old.is_live, "nothing comes back to life"


def test_of_two_that_meet_the_fresher_stands() -> None:
    here = fact("tea", "alice", created_at=NOW)
    newer, older = fact("coffee", "alice", created_at=NOW + DAY), fact("coffee", "alice", created_at=NOW - DAY)
    assert merge(subject(here), [newer]) == (newer, replace(here, superseded_by=newer.id))
    assert merge(subject(here), [older]) == (replace(older, superseded_by=here.id),)


def test_a_fact_replaced_by_its_own_source_removes_no_other() -> None:
    """Alice said coffee, then tea. Bob says coffee, and still does."""
    tea, coffee = fact("tea", "alice", created_at=NOW + DAY), fact("coffee", "bob", created_at=NOW - DAY)
    earlier = fact("coffee", "alice", created_at=NOW)
    assert merge(subject(tea, coffee), [earlier]) == (replace(earlier, superseded_by=tea.id),)


def test_one_who_is_beaten_by_its_own_value_still_replaces_what_its_source_said() -> None:
    """Alice said tea, then coffee. Bob said coffee after her."""
    tea, coffee = fact("tea", "alice", created_at=NOW - DAY), fact("coffee", "bob", created_at=NOW + DAY)
    later = fact("coffee", "alice", created_at=NOW)
    changed = {each.id: each.superseded_by for each in merge(subject(tea, coffee), [later])}
    assert changed == {later.id: coffee.id, tea.id: later.id}


# What no fact can be


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"confidence": 1.1}, "from 0 to 1"),
        ({"confidence": float("nan")}, "from 0 to 1"),
        ({"confidence": True}, "from 0 to 1"),
        ({"confidence": "high"}, "from 0 to 1"),
        ({"half_life": timedelta(0)}, "half_life"),
        ({"half_life": 3600}, "half_life"),
        ({"half_life": LONGEST_HALF_LIFE + DAY}, "half_life"),
        ({"source": ""}, "source"),
        ({"source": None}, "source"),
        ({"source": "a\x00"}, "NUL"),
        ({"verified_by": 3}, "verified_by"),
        ({"superseded_by": ""}, "superseded_by"),
        ({"relation": True, "value": ["bob"]}, "related entity"),
    ],
)
def test_a_fact_that_means_nothing_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        fact(**({"value": "tea"} | wrong))  # type: ignore[arg-type]
