"""Memory as a document: exact there and back, and refused with a path where it is wrong."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import InvalidValue
from holdfast.model.memory_document import from_document, to_document
from holdfast.model.records import LONGEST_HALF_LIFE, MemoryFact

names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20).filter(str.isprintable)
moments = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("aé\n\x00"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def facts(draw: st.DrawFn) -> MemoryFact:
    relation = draw(st.booleans())
    return MemoryFact(
        entity=draw(names),
        attribute=draw(names),
        value=draw(names if relation else values),
        relation=relation,
        confidence=draw(st.floats(0, 1)),
        source=draw(names),
        created_at=draw(moments),
        verified_at=draw(st.none() | moments),
        verified_by=draw(st.none() | names),
        superseded_by=draw(st.none() | names),
        half_life=draw(st.none() | st.timedeltas(timedelta(microseconds=1), LONGEST_HALF_LIFE)),
    )


@given(st.lists(facts(), max_size=5))
def test_a_document_says_exactly_what_is_remembered(known: list[MemoryFact]) -> None:
    document = to_document(known)
    assert from_document(json.loads(json.dumps(document))) == known


GOOD: dict[str, Any] = to_document(
    [
        MemoryFact(
            id="f", entity="e", attribute="a", value={"x": 1}, created_at=datetime(2026, 1, 1, tzinfo=UTC), confidence=1
        )
    ]
)


def changed(*path: str | int, to: object) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return document


def without(*path: str | int) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, r"memory: expected an object"),
        ([], r"memory: expected an object"),
        ({}, r"memory\.format: missing"),
        (changed("format", to="holdfast-tasks"), r"memory\.format: 'holdfast-tasks' is not a memory"),
        (changed("version", to=2), r"memory\.version: .* upgrade"),
        (changed("version", to=True), r"memory\.version: expected a whole number"),
        (changed("extra", to=1), r"memory\.extra: unknown key"),
        (without("facts"), r"memory\.facts: missing"),
        (changed("facts", to={}), r"memory\.facts: expected a list"),
        (changed("facts", 0, to="fact"), r"memory\.facts\[0\]: expected an object"),
        (without("facts", 0, "id"), r"memory\.facts\[0\]\.id: missing"),
        (without("facts", 0, "value"), r"memory\.facts\[0\]\.value: missing"),
        (without("facts", 0, "source"), r"memory\.facts\[0\]\.source: missing"),
        (without("facts", 0, "confidence"), r"memory\.facts\[0\]\.confidence: missing"),
        (without("facts", 0, "created_at"), r"memory\.facts\[0\]\.created_at: missing"),
        (changed("facts", 0, "confidence", to=2), r"memory\.facts\[0\]\.confidence: expected a number from 0 to 1"),
        (changed("facts", 0, "created_at", to="2026-01-01"), r"memory\.facts\[0\]\.created_at: .* no time zone"),
        (changed("facts", 0, "entity", to=""), r"memory\.facts\[0\]: fact entity is empty"),
        (changed("facts", 0, "value", "x", to={1}), r"memory\.facts\[0\]\.value\.x: "),
        (changed("facts", 0, "half_life", to="long"), r"memory\.facts\[0\]\.half_life: expected a number of seconds"),
        (changed("facts", 0, "half_life", to=-1), r"memory\.facts\[0\]: half_life"),
        (changed("facts", 0, "half_life", to=1e300), r"memory\.facts\[0\]\.half_life: "),
        (changed("facts", 0, "relation", to=1), r"memory\.facts\[0\]\.relation: expected true or false"),
        (changed("facts", 0, "relation", to=True), r"memory\.facts\[0\]: related entity"),
        (changed("facts", 0, "sauce", to="x"), r"memory\.facts\[0\]\.sauce: unknown key"),
        (changed("facts", to=GOOD["facts"] * 2), r"memory\.facts\[1\]\.id: 'f' is the id of memory\.facts\[0\]"),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_the_place(document: object, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        from_document(document)


def test_the_good_one_is_read() -> None:
    [fact] = from_document(GOOD)
    assert (fact.id, fact.value) == ("f", {"x": 1})
